// matmul: c = a @ b for a of shape (m, k), b of shape (k, n).  A block makes 128 x 128 elements of c from tiles of 16 columns of
// a and 16 rows of b.  Each of its 16 x 16 threads holds 8 x 8 of them in registers: four neighbours, and four more 64 further
// on, in both directions, so that shared memory is read four elements at a time and without conflicts.
constexpr int side = 128, depth = 16, threads = 16, own = side / threads, half = side / 2;
constexpr int turns = side * depth / (threads * threads);  // in which the threads fetch a tile
constexpr int pitch = side + 4;  // rows begin at multiples of 16 bytes, in other banks

static __device__ __forceinline__ int place(int thread, int i) { return thread * 4 + i % 4 + i / 4 * half; }

extern "C" __global__ void __launch_bounds__(threads * threads)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  __shared__ __align__(16) float of_a[depth][pitch], of_b[depth][pitch];
  const int tx = threadIdx.x, ty = threadIdx.y, rank = ty * threads + tx;
  const int top = blockIdx.y * side, left = blockIdx.x * side;
  float sum[own][own] = {};
  for (int at = 0; at < k; at += depth) {
#pragma unroll
    for (int t = 0; t < turns; ++t) {
      const int e = t * threads * threads + rank, row = e / depth, column = e % depth;
      of_a[column][row] = top + row < m && at + column < k ? a[(long)(top + row) * k + at + column] : 0.0f;
    }
#pragma unroll
    for (int t = 0; t < turns; ++t) {
      const int e = t * threads * threads + rank, row = e / side, column = e % side;
      of_b[row][column] = at + row < k && left + column < n ? b[(long)(at + row) * n + left + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < depth; ++d) {
      float x[own], y[own];
#pragma unroll
      for (int i = 0; i < own; ++i) x[i] = of_a[d][place(ty, i)], y[i] = of_b[d][place(tx, i)];
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
      const int row = top + place(ty, i), column = left + place(tx, j);
      if (row < m && column < n) c[(long)row * n + column] = sum[i][j];
    }
}
