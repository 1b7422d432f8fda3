// mandelbrot: how many steps z = z * z + c stays within 2, at most `most`, for each point c of a picture.
extern "C" __global__ void __launch_bounds__(256)
mandelbrot(int* __restrict__ steps, int height, int width, float left, float top, float pixel, int most) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= height || column >= width) return;
  const float cx = left + column * pixel, cy = top + row * pixel;
  float x = 0, y = 0, xx = 0, yy = 0;
  int count = 0;
  while (count < most && xx + yy <= 4.0f) {
    y = 2.0f * x * y + cy;
    x = xx - yy + cx;
    xx = x * x, yy = y * y;
    ++count;
  }
  steps[(long)row * width + column] = count;
}
