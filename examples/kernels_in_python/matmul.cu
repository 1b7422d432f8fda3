// matmul: c = a @ b for a of shape (m, k), b of shape (k, n).  A block makes 64 x 64 elements of c from tiles of 16 columns
// of a and 16 rows of b; each of its 16 x 16 threads holds 4 x 4 of them in registers, 16 rows and 16 columns apart.
constexpr int side = 64, depth = 16, threads = 16, own = side / threads;

extern "C" __global__ void __launch_bounds__(threads * threads)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  __shared__ float of_a[depth][side + 1], of_b[depth][side];
  const int tx = threadIdx.x, ty = threadIdx.y, rank = ty * threads + tx;
  const int top = blockIdx.y * side, left = blockIdx.x * side;
  float sum[own][own] = {};
  for (int at = 0; at < k; at += depth) {
#pragma unroll
    for (int e = rank; e < side * depth; e += threads * threads) {
      const int row = e / depth, column = e % depth;
      of_a[column][row] = top + row < m && at + column < k ? a[(long)(top + row) * k + at + column] : 0.0f;
    }
#pragma unroll
    for (int e = rank; e < side * depth; e += threads * threads) {
      const int row = e / side, column = e % side;
      of_b[row][column] = at + row < k && left + column < n ? b[(long)(at + row) * n + left + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      float x[own], y[own];
#pragma unroll
      for (int i = 0; i < own; ++i) x[i] = of_a[d][ty + i * threads], y[i] = of_b[d][tx + i * threads];
#pragma unroll
      for (int i = 0; i < own; ++i)
#pragma unroll
        for (int j = 0; j < own; ++j) sum[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < own; ++i)
#pragma unroll
    for (int j = 0; j < own; ++j) {
      const int row = top + ty + i * threads, column = left + tx + j * threads;
      if (row < m && column < n) c[(long)row * n + column] = sum[i][j];
    }
}
