// img2gray: a picture of shape (height, width, 3) becomes gray of shape (height, width), weighed as ITU-R BT.601 does.
extern "C" __global__ void __launch_bounds__(256)
img2gray(const unsigned char* __restrict__ rgb, unsigned char* __restrict__ gray, int height, int width) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= height || column >= width) return;
  const long pixel = (long)row * width + column;
  const unsigned char* p = rgb + 3 * pixel;
  gray[pixel] = (unsigned char)(0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2] + 0.5f);
}
