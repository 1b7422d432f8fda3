// transpose: out[j, i] = x[i, j].  A tile goes through shared memory, so that reads and writes both run along rows; one
// column more than the tile has keeps the threads of a warp in banks of their own.
constexpr int tile = 32, rows = 4;  // a thread moves eight elements

extern "C" __global__ void __launch_bounds__(tile * rows)
transpose(const float* __restrict__ x, float* __restrict__ out, int height, int width) {
  __shared__ float part[tile][tile + 1];
  const int left = blockIdx.x * tile, top = blockIdx.y * tile;
#pragma unroll
  for (int r = threadIdx.y; r < tile; r += rows)
    if (top + r < height && left + threadIdx.x < width)
      part[r][threadIdx.x] = x[(long)(top + r) * width + left + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int r = threadIdx.y; r < tile; r += rows)
    if (left + r < width && top + threadIdx.x < height)
      out[(long)(left + r) * height + top + threadIdx.x] = part[threadIdx.x][r];
}
