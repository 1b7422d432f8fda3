// A picture of RGB bytes becomes gray, weighed as ITU-R BT.601 does; what `kernelmill demo` runs beside the Python form.
extern "C" __global__ void grayscale(const unsigned char* rgb, unsigned char* gray, long pixels) {
  const long step = (long)gridDim.x * blockDim.x;
  for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < pixels; i += step) {
    const unsigned char* p = rgb + 3 * i;
    gray[i] = (unsigned char)(0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2] + 0.5f);
  }
}
