// The calls of a host program: properties, attributes, occupancy, pools, pitches, symbols, streams, callbacks, launches by name.
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <string>
#include <vector>

#define CHECK(call)                                                                              \
  do {                                                                                           \
    cudaError_t error_ = (call);                                                                 \
    if (error_ != cudaSuccess) {                                                                 \
      fprintf(stderr, "%s:%d: %s (%s) in '%s'\n", __FILE__, __LINE__, cudaGetErrorString(error_), \
              cudaGetErrorName(error_), #call);                                                  \
      exit(EXIT_FAILURE);                                                                        \
    }                                                                                            \
  } while (0)
inline void check_(cudaError_t e, const char* what, int line) {
  if (e != cudaSuccess) throw std::string(what) + " at " + std::to_string(line) + ": " + cudaGetErrorString(e);
}
#define checkThat(call) check_((call), #call, __LINE__)

__constant__ float weights[4];
__constant__ struct { int n; double scale; } settings = {3, 0.5};
__device__ int counter = 5;
__device__ __managed__ int shared_with_host = 1;
__device__ float* where;

__global__ void weigh(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * weights[i & 3] * (float)settings.scale * settings.n;
}
__global__ void rows(char* base, size_t pitch, int width, int height, int depth) {
  const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  if (x < width && y < height && z < depth) ((int*)(base + pitch * (z * height + y)))[x] += 100 * z + 10 * y + x;
}
__global__ void count(int by) {
  atomicAdd(&counter, by);
  if (threadIdx.x == 0 && blockIdx.x == 0) shared_with_host += 10, where[1] = 7;
}
__global__ void busy(long long ticks) {
  const long long begun = clock64();
  const clock_t also = clock();
  while (clock64() - begun < ticks) {}
  if (clock() < also) counter = -1;
}
static void CUDART_CB called(cudaStream_t, cudaError_t status, void* data) { *(int*)data = status == cudaSuccess ? 1 : -1; }
static void hosted(void* data) { ++*(int*)data; }
struct Cleaner {
  cudaStream_t stream;
  ~Cleaner() { cudaStreamDestroy(stream); }
};

int main(int argc, char** argv) {
  int devices = 0, wrong = 0;
  checkThat(cudaGetDeviceCount(&devices));
  cudaDeviceProp prop;
  for (int d = 0; d < devices; d++) {
    CHECK(cudaGetDeviceProperties(&prop, d));
    printf("%d.%d, %zu MiB, warps of %d, at most (%d, %d, %d)\n", prop.major, prop.minor, prop.totalGlobalMem >> 20,
           prop.warpSize, prop.maxThreadsDim[0], prop.maxThreadsDim[1], prop.maxThreadsDim[2]);
  }
  CHECK(cudaSetDevice(0));
  int version, value, grid, block, blocks;
  CHECK(cudaRuntimeGetVersion(&version));
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  wrong += value != (int)prop.sharedMemPerBlockOptin || version < 12000;
  CHECK(cudaFuncSetAttribute(weigh, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, weigh, 0, 0));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, weigh, block, 0));
  wrong += block % prop.warpSize || blocks < 1;

  const int n = argc > 1 ? atoi(argv[1]) : 1000;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; i++) x[i] = (float)i;
  float *dx = nullptr, *dy, *pinned, *w = new float[4]{1, 2, 3, 4};
  CHECK(cudaMalloc(&dx, n * sizeof(float)));
  CHECK(cudaMalloc((void**)&dy, sizeof(float) * n));
  CHECK(cudaMallocHost((void**)&pinned, n * sizeof(float)));
  CHECK(cudaMemcpyToSymbol(weights, w, 4 * sizeof(float)));
  Cleaner cleaner;
  cudaStream_t& stream = cleaner.stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreateWithFlags(&stop, cudaEventBlockingSync));
  memcpy(pinned, x.data(), n * sizeof(float));
  CHECK(cudaEventRecord(start, stream));
  CHECK(cudaMemcpyAsync(dx, pinned, n * sizeof(float), cudaMemcpyHostToDevice, stream));
  weigh<<<(unsigned)ceil(n / 256.0), 256, 0, stream>>>(dx, dy, n);
  CHECK(cudaPeekAtLastError());
  CHECK(cudaMemcpyAsync(y.data(), dy, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaEventRecord(stop, stream));
  int seen = 0, host = 0;
  CHECK(cudaStreamAddCallback(stream, called, &seen, 0));
  CHECK(cudaLaunchHostFunc(stream, hosted, &host));
  CHECK(cudaEventSynchronize(stop));
  CHECK(cudaStreamSynchronize(stream));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
  wrong += milliseconds < 0 || seen != 1 || host != 1;
  for (int i = 0; i < n; i++) wrong += y[i] != x[i] * w[i & 3] * 1.5f;

  void* arguments[] = {&dx, &dy, (void*)&n};
  CHECK(cudaMemset(dy, 0, n * sizeof(float)));
  CHECK(cudaLaunchKernel((const void*)weigh, dim3((n + 127) / 128), dim3(128), arguments, 0, stream));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((n + 63) / 64), config.blockDim = dim3(64), config.stream = stream;
  CHECK(cudaLaunchKernelEx(&config, weigh, (const float*)dx, dy, n));
  CHECK(cudaMemcpy(y.data(), dy, n * sizeof(float), cudaMemcpyDefault));
  for (int i = 0; i < n; i++) wrong += y[i] != x[i] * w[i & 3] * 1.5f;

  size_t pitch, bytes;
  int* flat;
  CHECK(cudaMallocPitch(&flat, &pitch, 5 * sizeof(int), 3));
  CHECK(cudaMemset2D(flat, pitch, 0, 5 * sizeof(int), 3));
  rows<<<dim3(3), 8>>>((char*)flat, pitch, 5, 3, 1);
  int back[3][5];
  CHECK(cudaMemcpy2D(back, sizeof back[0], flat, pitch, sizeof back[0], 3, cudaMemcpyDeviceToHost));
  wrong += back[2][4] != 24 || pitch < sizeof back[0];
  cudaExtent extent = make_cudaExtent(4 * sizeof(int), 3, 2);
  cudaPitchedPtr volume;
  CHECK(cudaMalloc3D(&volume, extent));
  CHECK(cudaMemset3D(volume, 0, extent));
  rows<<<dim3(3, 2), 4>>>((char*)volume.ptr, volume.pitch, 4, 3, 2);
  int all[2][3][4];
  cudaMemcpy3DParms copy = {0};
  copy.srcPtr = volume, copy.extent = extent, copy.kind = cudaMemcpyDeviceToHost;
  copy.dstPtr = make_cudaPitchedPtr(all, 4 * sizeof(int), 4, 3);
  CHECK(cudaMemcpy3D(&copy));
  wrong += all[1][2][3] != 123 || all[0][1][2] != 12;

  CHECK(cudaGetSymbolAddress((void**)&flat, counter));
  CHECK(cudaGetSymbolSize(&bytes, weights));
  CHECK(cudaMemcpyToSymbol(where, &dx, sizeof(dx)));
  count<<<2, 32>>>(2);
  CHECK(cudaDeviceSynchronize());
  int counted, direct;
  CHECK(cudaMemcpyFromSymbol(&counted, counter, sizeof counted));
  CHECK(cudaMemcpy(&direct, flat, sizeof direct, cudaMemcpyDeviceToHost));
  wrong += counted != 133 || direct != 133 || bytes != 16 || shared_with_host != 11;
  float seven;
  CHECK(cudaMemcpy(&seven, dx + 1, sizeof seven, cudaMemcpyDeviceToHost));
  wrong += seven != 7;

  cudaMemPool_t pool;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = ~0ull;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  int* ordered;
  CHECK(cudaMallocAsync(&ordered, 64, stream));
  CHECK(cudaMemsetAsync(ordered, 0xff, 64, stream));
  CHECK(cudaMemcpyAsync(&value, ordered + 3, 4, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(ordered, stream));
  cudaPointerAttributes kind;
  CHECK(cudaPointerGetAttributes(&kind, dx));
  wrong += value != -1 || kind.type != cudaMemoryTypeDevice;
  CHECK(cudaPointerGetAttributes(&kind, pinned));
  wrong += kind.type != cudaMemoryTypeHost;

  busy<<<1, 1>>>(1000);
  const auto now = std::chrono::steady_clock::now();
  wrong += std::chrono::duration<double>(std::chrono::steady_clock::now() - now).count() < 0 || clock() < 0;

  weigh<<<1, 2000>>>(dx, dy, n);
  printf("%s, ", cudaGetErrorName(cudaGetLastError()));
  printf("then %s\n", cudaGetErrorString(cudaGetLastError()));
  printf("%s\n", cudaGetErrorString(cudaFree((void*)&wrong)));
  cudaGetLastError();
  CHECK(cudaFree(dx));
  CHECK(cudaFree(dy));
  CHECK(cudaFree(0));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  CHECK(cudaDeviceReset());
  delete[] w;
  printf("%d wrong\n", wrong);
  return wrong != 0;
}
