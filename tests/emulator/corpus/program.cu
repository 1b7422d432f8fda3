// A whole program: error macros, templates, streams, events, symbols, unified memory, a cooperative launch, printf.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                  \
  do {                                                                               \
    cudaError_t error = (call);                                                      \
    if (error != cudaSuccess) {                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
      exit(3);                                                                       \
    }                                                                                \
  } while (0)
#define LAUNCH(kernel, grid, block, ...)    \
  do {                                      \
    kernel<<<grid, block>>>(__VA_ARGS__);   \
    CHECK(cudaGetLastError());              \
  } while (0)

__constant__ float factors[2];
__device__ int seen;

template <typename T, int N>
__global__ void scale(T* x, const int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factors[0] + N;
  if (i == 0) atomicAdd(&seen, 1);
}
__global__ void fill(float* x, int n, float value) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value + i;
}
__global__ void say(int n) {
  if (threadIdx.x < n) printf("thread %d of block %d\n", threadIdx.x, blockIdx.x);
}
__global__ void neighbours(int* x, int* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  x[i] = i;
  cooperative_groups::this_grid().sync();
  y[i] = x[(i + 1) % n];
}
struct Buffer {
  float* at = nullptr;
  explicit Buffer(size_t n) { CHECK(cudaMalloc(&at, n * sizeof(float))); }
  ~Buffer() { cudaFree(at); }
};

int main(int argc, char** argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 1000;
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  printf("on %s\n", properties.name);

  Buffer x(n);
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  const float host_factors[2] = {2.0f, 0.0f};
  CHECK(cudaMemcpyToSymbol(factors, host_factors, sizeof host_factors));
  CHECK(cudaEventRecord(begin, stream));
  fill<<<(n + 127) / 128, 128, 0, stream>>>(x.at, n, 0.5f);
  scale<float, 3><<<dim3((n + 63) / 64), dim3(64), 0, stream>>>(x.at, n);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaStreamSynchronize(stream));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));

  std::vector<float> out(n);
  CHECK(cudaMemcpyAsync(out.data(), x.at, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaDeviceSynchronize());
  int wrong = 0;
  for (int i = 0; i < n; i++) wrong += std::abs(out[i] - (2 * (i + 0.5f) + 3)) > 1e-3f;
  int count = 0;
  CHECK(cudaMemcpyFromSymbol(&count, seen, sizeof count));
  printf("%d wrong, %d seen, time %s\n", wrong, count, milliseconds >= 0 ? "is known" : "is not known");

  int *a, *b;
  CHECK(cudaMallocManaged(&a, 256 * sizeof(int)));
  CHECK(cudaMallocManaged(&b, 256 * sizeof(int)));
  void* arguments[] = {&a, &b};
  CHECK(cudaLaunchCooperativeKernel(neighbours, dim3(4), dim3(64), arguments));
  CHECK(cudaDeviceSynchronize());
  printf("neighbours %d %d\n", b[0], b[255]);
  b[0] = 0;
  CHECK(cudaLaunchCooperativeKernel((void*)neighbours, dim3(4), dim3(64), arguments, 0, NULL));
  printf("again %d\n", b[0]);
  LAUNCH(say, 1, 32, 2);
  fill<<<1, 2048>>>(x.at, n, 0);
  printf("%s\n", cudaGetErrorName(cudaGetLastError()));
  return wrong ? 1 : std::max(0, count - 1);
}
