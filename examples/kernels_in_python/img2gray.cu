// img2gray: a picture of shape (height, width, 3) becomes gray of shape (height, width), weighed as ITU-R BT.601 does.  Every
// thread takes pixels a whole grid apart, four at a time.
extern "C" __global__ void __launch_bounds__(256)
img2gray(const unsigned char* __restrict__ rgb, unsigned char* __restrict__ gray, int height, int width) {
  const long pixels = (long)height * width, step = (long)gridDim.x * blockDim.x;
#pragma unroll 4
  for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < pixels; i += step) {
    const unsigned char* p = rgb + 3 * i;
    gray[i] = (unsigned char)(0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2] + 0.5f);
  }
}
