// transpose: out[j, i] = x[i, j].  A tile goes through shared memory, so that reads and writes both run along rows; one
// column more than the tile has keeps the threads of a warp in banks of their own.  A thread moves eight elements.
constexpr int tile = 32, rows = 4;

extern "C" __global__ void __launch_bounds__(tile * rows)
transpose(const float* __restrict__ x, float* __restrict__ out, int height, int width) {
  __shared__ float part[tile][tile + 1];
  const int left = blockIdx.x * tile, top = blockIdx.y * tile;
#pragma unroll
  for (int t = 0; t < tile; t += rows) {
    const int r = t + threadIdx.y, i = top + r, j = left + threadIdx.x;
    if (i < height && j < width) part[r][threadIdx.x] = x[(long)i * width + j];
  }
  __syncthreads();
#pragma unroll
  for (int t = 0; t < tile; t += rows) {
    const int r = t + threadIdx.y, i = top + threadIdx.x, j = left + r;
    if (i < height && j < width) out[(long)j * height + i] = part[threadIdx.x][r];
  }
}
