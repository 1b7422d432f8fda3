// stencil: one step of the heat equation on a plane; the border keeps its values.  A thread takes four rows of a column, whose
// values it then holds in registers; neighbours at its sides come out of the caches.
constexpr int rows = 4;

extern "C" __global__ void __launch_bounds__(256)
stencil(const float* __restrict__ u, float* __restrict__ out, int height, int width, float rate) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, first = (blockIdx.y * blockDim.y + threadIdx.y) * rows;
  if (column >= width) return;
  const bool within = column > 0 && column < width - 1;
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = first + r;
    if (row >= height) return;
    const long at = (long)row * width + column;
    float value = u[at];
    if (within && row > 0 && row < height - 1)
      value += rate * (u[at - width] + u[at + width] + u[at - 1] + u[at + 1] - 4.0f * value);
    out[at] = value;
  }
}
