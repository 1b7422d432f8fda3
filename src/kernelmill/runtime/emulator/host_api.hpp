// host_api.hpp - the part of CUDA's runtime API that programs need on a machine of one emulated device: everything is done
// at once, a stream is a number and an event a time.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.hpp"

// What other headers ask for before they use this API.
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define CUDART_VERSION 13000
#define CUDART_CB
#define CUDARTAPI

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorAssert = 710,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
};
typedef cudaError cudaError_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
struct CUevent_st { long long nanoseconds; };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrClockRate = 13,
  cudaDevAttrGpuOverlap = 15,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrKernelExecTimeout = 17,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrCanMapHostMemory = 19,
  cudaDevAttrComputeMode = 20,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrPageableMemoryAccess = 88,
  cudaDevAttrConcurrentManagedAccess = 89,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaLimit {
  cudaLimitStackSize,
  cudaLimitPrintfFifoSize,
  cudaLimitMallocHeapSize,
  cudaLimitDevRuntimeSyncDepth,
  cudaLimitDevRuntimePendingLaunchCount
};
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited };
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
constexpr unsigned cudaHostAllocWriteCombined = 4, cudaHostRegisterDefault = 0, cudaHostRegisterMapped = 2;
constexpr unsigned cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleBlockingSync = 4;
constexpr unsigned cudaDeviceMapHost = 8, cudaDeviceBlockingSync = 4;
constexpr unsigned cudaMemAttachGlobal = 1, cudaMemAttachHost = 2;
constexpr int cudaCpuDeviceId = -1;
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, totalConstMem;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor, multiProcessorCount, major, minor, clockRate;
  int memoryClockRate, memoryBusWidth, l2CacheSize, cooperativeLaunch, concurrentKernels, asyncEngineCount, integrated;
  int deviceOverlap, kernelExecTimeoutEnabled, pageableMemoryAccess, singleToDoublePrecisionPerfRatio;
  int cooperativeMultiDeviceLaunch, pciBusID, pciDeviceID, pciDomainID, ECCEnabled, tccDriver;
  size_t memPitch, textureAlignment;
  int canMapHostMemory, unifiedAddressing, managedMemory, concurrentManagedAccess, computeMode;
  int maxThreadsDim[3], maxGridSize[3];
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, maxDynamicSharedSizeBytes;
};

extern "C" void km_emu_register(void* at, size_t bytes, const char* name);
extern "C" void km_emu_unregister(void* at);
extern "C" void km_emu_written(const void* at, size_t bytes);

namespace km_emu {

constexpr int multiprocessors = 4, shared_limit = 227 << 10;
constexpr size_t allocation = 256, guard = 512, poisoned = 4 << 20;

inline cudaError_t last_error = cudaSuccess;
inline cudaError_t broken = cudaSuccess;  // a launch failed: nothing works any more, as on a GPU
inline cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Fresh memory is filled with a pattern, so that what reads it before it is written goes wrong visibly.
template <class T>
cudaError_t allocate(T** out, size_t bytes, const char* name) {
  if (broken) return broken;
  const size_t whole = ((bytes + allocation - 1) & ~(allocation - 1)) + guard;
  char* made = bytes < (size_t)1 << 47 ? (char*)aligned_alloc(allocation, whole) : nullptr;
  if (!made) return keep(cudaErrorMemoryAllocation);
  if (bytes <= poisoned) memset(made, 0xcd, bytes + guard);
  *out = (T*)made;
  km_emu_register(made, bytes, name);
  return cudaSuccess;
}

// The configuration of `k<<<...>>>`.
struct Shape {
  dim3 grid, block;
  size_t shared;
  void* stream;
  Shape(dim3 g, dim3 b, size_t s = 0, const void* on = nullptr) : grid(g), block(b), shared(s), stream((void*)on) {}
};
// Makes the record of a launch; false where no GPU would take it.
inline bool prepare(Launch& record, const Shape& shape, bool cooperative) {
  if (broken) return false;
  record = *km_emu_defaults();
  record.grid = shape.grid, record.block = shape.block;
  record.shared = (u32)shape.shared;
  record.cooperative = cooperative;
  if (shape.shared <= shared_limit && shape.block.z <= 64 && shape.grid.y <= 65535 && shape.grid.z <= 65535) return true;
  keep(cudaErrorInvalidConfiguration);
  return false;
}
inline void conclude(const Launch& record, const Shape& shape) {
  if (record.status == fine) return;
  const bool refused = record.status == misused && (usize)shape.block.x * shape.block.y * shape.block.z > 1024;
  if (refused || (u64)shape.block.x * shape.block.y * shape.block.z * shape.grid.x * shape.grid.y * shape.grid.z == 0) {
    keep(cudaErrorInvalidConfiguration);
    return;
  }
  fflush(stdout);
  fprintf(stderr, "kernelmill emulator: %s\n", record.message);
  broken = record.status == failed_assertion ? cudaErrorAssert : cudaErrorLaunchFailure;
  keep(broken);
}
template <class K, class... A>
void launch_as(Shape shape, bool cooperative, K&& kernel, A... arguments) {
  Launch record;
  if (!prepare(record, shape, cooperative)) return;
  start(record, [kernel, arguments...]() { kernel(arguments...); });
  conclude(record, shape);
}
template <class K, class... A>
void launch(Shape shape, K&& kernel, A... arguments) {
  launch_as(shape, false, kernel, arguments...);
}

// Kernels by their address, for launches that have lost their types: `cudaLaunchKernel((void*)kernel, ...)`.
struct Registered {
  const void* kernel;
  void (*run)(Launch*, void**);
  Registered* next;
  static inline Registered* first = nullptr;
  template <class K>
  Registered(K* k, void (*starter)(Launch*, void**)) : kernel((const void*)k), run(starter), next(first) {
    first = this;
  }
};
inline cudaError_t launch_registered(const void* kernel, Shape shape, bool cooperative, void** arguments) {
  for (const Registered* found = Registered::first; found; found = found->next) {
    if (found->kernel != kernel) continue;
    Launch record;
    if (prepare(record, shape, cooperative)) found->run(&record, arguments), conclude(record, shape);
    return last_error;
  }
  return keep(cudaErrorInvalidDeviceFunction);
}

template <class T> using bare_of = typename bare<T>::type;
template <int... I> struct Places {};
template <int N, int... I> struct CountPlaces : CountPlaces<N - 1, N - 1, I...> {};
template <int... I> struct CountPlaces<0, I...> { typedef Places<I...> type; };
template <class... P, int... I>
void launch_packed(void (*kernel)(P...), Shape shape, bool cooperative, void** arguments, Places<I...>) {
  launch_as(shape, cooperative, kernel, *(bare_of<P>*)arguments[I]...);
}

}  // namespace km_emu

// ---- memory ---------------------------------------------------------------------------------------------------------

#define cudaMalloc(out, ...) km_emu::allocate((out), (__VA_ARGS__), #out)
#define cudaMallocManaged(out, bytes, ...) km_emu::allocate((out), (bytes), #out)
#define cudaMallocAsync(out, bytes, ...) km_emu::allocate((out), (bytes), #out)
inline cudaError_t cudaFree(void* at) {
  if (at) km_emu_unregister(at), free(at);
  return km_emu::broken;
}
inline cudaError_t cudaFreeAsync(void* at, cudaStream_t) { return cudaFree(at); }
template <class T> cudaError_t cudaMallocHost(T** out, size_t bytes, unsigned = 0) {
  *out = (T*)aligned_alloc(km_emu::allocation, (bytes + km_emu::allocation) & ~(km_emu::allocation - 1));
  return *out ? cudaSuccess : km_emu::keep(cudaErrorMemoryAllocation);
}
template <class T> cudaError_t cudaHostAlloc(T** out, size_t bytes, unsigned flags) {
  return cudaMallocHost(out, bytes, flags);
}
template <class T> cudaError_t cudaHostGetDevicePointer(T** out, void* at, unsigned) {
  *out = (T*)at;
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* at) {
  free(at);
  return cudaSuccess;
}
template <class T> cudaError_t cudaMallocPitch(T** out, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) & ~(size_t)511;
  return km_emu::allocate(out, *pitch * height, "pitched array");
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (km_emu::broken) return km_emu::broken;
  memmove(to, from, bytes);
  km_emu_written(to, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                                cudaMemcpyKind kind) {
  cudaError_t error = cudaSuccess;
  for (size_t y = 0; y < height && !error; y++)
    error = cudaMemcpy((char*)to + y * to_pitch, (const char*)from + y * from_pitch, width, kind);
  return error;
}
inline cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  if (km_emu::broken) return km_emu::broken;
  memset(at, value, bytes);
  km_emu_written(at, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(at, value, bytes);
}
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
  memcpy((char*)&symbol + offset, from, bytes);
  return km_emu::broken;
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  memcpy(to, (const char*)&symbol + offset, bytes);
  return km_emu::broken;
}
template <class T> cudaError_t cudaGetSymbolAddress(void** out, const T& symbol) {
  *out = (void*)&symbol;
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = (size_t)8 << 30;
  return cudaSuccess;
}
template <class... A> cudaError_t cudaMemPrefetchAsync(A...) { return cudaSuccess; }
template <class... A> cudaError_t cudaMemAdvise(A...) { return cudaSuccess; }
inline cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }

// ---- errors and devices ---------------------------------------------------------------------------------------------

inline cudaError_t cudaGetLastError() {
  const cudaError_t error = km_emu::last_error;
  km_emu::last_error = km_emu::broken;
  return error;
}
inline cudaError_t cudaPeekAtLastError() { return km_emu::last_error; }
inline cudaError_t cudaDeviceSynchronize() { return km_emu::broken; }
inline cudaError_t cudaThreadSynchronize() { return km_emu::broken; }
inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorPeerAccessAlreadyEnabled: return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorAssert: return "cudaErrorAssert";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
  }
  return "cudaErrorUnknown";
}
inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorAssert: return "device-side assert triggered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotSupported: return "operation not supported";
  }
  return "unknown error";
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : km_emu::keep(cudaErrorInvalidDevice); }
inline cudaError_t cudaDeviceReset() {
  km_emu::broken = km_emu::last_error = cudaSuccess;
  return cudaSuccess;
}
inline cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return km_emu::keep(cudaErrorInvalidDevice); }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return km_emu::keep(cudaErrorInvalidDevice); }
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
template <class... A> cudaError_t cudaSetDeviceFlags(A...) { return cudaSuccess; }
template <class... A> cudaError_t cudaDeviceSetCacheConfig(A...) { return cudaSuccess; }
template <class... A> cudaError_t cudaDeviceSetLimit(A...) { return cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (device != 0) return km_emu::keep(cudaErrorInvalidDevice);
  *out = cudaDeviceProp();
  strcpy(out->name, "kernelmill emulator");
  out->totalGlobalMem = (size_t)8 << 30;
  out->sharedMemPerBlock = 48 << 10;
  out->sharedMemPerBlockOptin = out->sharedMemPerMultiprocessor = km_emu::shared_limit;
  out->totalConstMem = 64 << 10;
  out->regsPerBlock = 65536, out->warpSize = 32, out->maxThreadsPerBlock = 1024, out->maxThreadsPerMultiProcessor = 2048;
  out->multiProcessorCount = km_emu::multiprocessors, out->major = 9, out->minor = 0;
  out->clockRate = out->memoryClockRate = 1000000, out->memoryBusWidth = 256, out->l2CacheSize = 4 << 20;
  out->cooperativeLaunch = out->concurrentKernels = out->unifiedAddressing = out->managedMemory = 1;
  out->canMapHostMemory = out->concurrentManagedAccess = out->integrated = 1;
  out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024, out->maxThreadsDim[2] = 64;
  out->maxGridSize[0] = 0x7fffffff, out->maxGridSize[1] = out->maxGridSize[2] = 65535;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp all;
  const cudaError_t error = cudaGetDeviceProperties(&all, device);
  if (error) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *out = all.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *out = (int)all.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *out = all.warpSize; break;
    case cudaDevAttrClockRate: *out = all.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *out = all.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *out = all.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *out = all.major; break;
    case cudaDevAttrComputeCapabilityMinor: *out = all.minor; break;
    case cudaDevAttrComputeMode: *out = cudaComputeModeDefault; break;
    case cudaDevAttrKernelExecTimeout: *out = 0; break;
    case cudaDevAttrMemoryClockRate: *out = all.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *out = all.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *out = all.l2CacheSize; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *out = (int)all.sharedMemPerMultiprocessor; break;
    case cudaDevAttrGpuOverlap:
    case cudaDevAttrIntegrated:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch: *out = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *out = (int)all.sharedMemPerBlockOptin; break;
    default: return km_emu::keep(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

// ---- streams and events ---------------------------------------------------------------------------------------------

inline cudaError_t cudaStreamCreate(cudaStream_t* out) {
  *out = (cudaStream_t)8;
  return km_emu::broken;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) { return cudaStreamCreate(out); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) { return cudaStreamCreate(out); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return km_emu::broken; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return km_emu::broken; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return km_emu::broken; }
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -1;
  return cudaSuccess;
}
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void*);
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned) {
  call(stream, km_emu::broken, data);
  return km_emu::broken;
}
typedef void (*cudaHostFn_t)(void*);
inline cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t call, void* data) {
  call(data);
  return km_emu::broken;
}
template <class... A> cudaError_t cudaStreamAttachMemAsync(A...) { return km_emu::broken; }
inline cudaError_t cudaEventCreate(cudaEvent_t* out) {
  *out = (cudaEvent_t)calloc(1, sizeof(CUevent_st));
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return cudaEventCreate(out); }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
  event->nanoseconds = km_emu_clock();
  return km_emu::broken;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return km_emu::broken; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return km_emu::broken; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = (float)((double)(to->nanoseconds - from->nanoseconds) * 1e-6);
  return cudaSuccess;
}

// ---- launches by function -------------------------------------------------------------------------------------------

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                             cudaStream_t stream = nullptr) {
  km_emu::launch_packed(kernel, km_emu::Shape(grid, block, shared, stream), false, arguments,
                        typename km_emu::CountPlaces<(int)sizeof...(P)>::type());
  return km_emu::last_error;
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                                        cudaStream_t stream = nullptr) {
  km_emu::launch_packed(kernel, km_emu::Shape(grid, block, shared, stream), true, arguments,
                        typename km_emu::CountPlaces<(int)sizeof...(P)>::type());
  return km_emu::last_error;
}
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                                    cudaStream_t stream = nullptr) {
  return km_emu::launch_registered(kernel, km_emu::Shape(grid, block, shared, stream), false, arguments);
}
inline cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                               size_t shared = 0, cudaStream_t stream = nullptr) {
  return km_emu::launch_registered(kernel, km_emu::Shape(grid, block, shared, stream), true, arguments);
}
template <class F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int bytes) {
  return bytes <= km_emu::shared_limit ? cudaSuccess : km_emu::keep(cudaErrorInvalidValue);
}
template <class F> cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, F) {
  *out = cudaFuncAttributes();
  out->maxThreadsPerBlock = 1024, out->numRegs = 32, out->maxDynamicSharedSizeBytes = km_emu::shared_limit;
  return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int threads, size_t) {
  *blocks = threads > 1024 ? 1 : 2048 / (threads > 0 ? threads : 1);
  return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, size_t = 0, int limit = 0) {
  *block = limit > 0 && limit < 256 ? limit : 256;
  *grid = km_emu::multiprocessors * (2048 / *block);
  return cudaSuccess;
}
