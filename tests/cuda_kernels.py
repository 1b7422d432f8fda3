"""Kernels that the tests of the CUDA runtime launch, and arrays to launch them on."""

from __future__ import annotations

import numpy as np

from kernelmill.runtime import cuda

TEXT = """
struct Point { float x; long n; };
extern "C" {
__global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void fill(float* x, float value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value;
}
__global__ void wait_then_fill(float* x, float value, int n, long cycles) {
  long start = clock64();
  while (clock64() - start < cycles) {}
  if (threadIdx.x < n) x[threadIdx.x] = value;
}
__global__ void by_value(Point p, double d, signed char c, double* out) {
  out[0] = p.x; out[1] = p.n; out[2] = d; out[3] = c;
}
__global__ void where(int* out) {
  out[blockIdx.x] = 1 + (int)blockIdx.x + 1000 * (int)gridDim.x;
}
__global__ void shared(int* out, int n) {
  extern __shared__ int tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = i;
  __syncthreads();
  int sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += tile[n - 1 - i] == n - 1 - i;
  atomicAdd(out, sum);
}
__global__ void clusters(int* out) {
  unsigned rank = 0, size = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
#endif
  if (threadIdx.x == 0) out[blockIdx.x] = rank * 100 + size;
}
__global__ void __launch_bounds__(64) small_blocks(int* out) { out[0] = blockDim.x; }
__global__ void nothing(long a, long b, long c, long d, long e, long f) {}
__global__ void beyond(float* x) { x[(1l << 40) + threadIdx.x] = 1; }
__global__ void trap() { asm("trap;"); }
}
template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }
"""


def blocks(n: int) -> cuda.LaunchConfig:
    return cuda.LaunchConfig(grid=-(-n // 256), block=256)


def zeros(n: int, dtype=np.float32) -> cuda.CudaArray:
    return cuda.to_device(np.zeros(n, dtype))
