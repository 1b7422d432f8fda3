// stencil: one step of the heat equation on a plane; the border keeps its values.  Neighbours come out of the caches.
extern "C" __global__ void __launch_bounds__(256)
stencil(const float* __restrict__ u, float* __restrict__ out, int height, int width, float rate) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= height || column >= width) return;
  const long at = (long)row * width + column;
  float value = u[at];
  if (row > 0 && row < height - 1 && column > 0 && column < width - 1)
    value += rate * (u[at - width] + u[at + width] + u[at - 1] + u[at + 1] - 4.0f * value);
  out[at] = value;
}
