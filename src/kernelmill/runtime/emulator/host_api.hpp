// host_api.hpp - the part of CUDA's runtime API that programs need on a machine of one emulated device: launches, devices,
// streams, events. Everything is done at once, so a stream is an address and an event a time. Memory is in host_memory.hpp.
#pragma once
#include <stdio.h>
#include <time.h>

#include "host_memory.hpp"

// What the compiler of CUDA brings to a program that does not ask for it.
#if defined(KM_EMU_PROGRAM) && !defined(__clang__)
#include <initializer_list>
#include <utility>
#endif

namespace km_emu {

constexpr int multiprocessors = 4, shared_limit = 227 << 10;

// The configuration of `k<<<...>>>`.
struct Shape {
  dim3 grid, block;
  size_t shared;
  void* stream;
  Shape(dim3 g, dim3 b, size_t s = 0, const void* on = nullptr) : grid(g), block(b), shared(s), stream((void*)on) {}
};
// Makes the record of a launch; an error where no GPU would take it.
inline cudaError_t prepare(Launch& record, const Shape& shape, bool cooperative) {
  if (broken) return broken;
  record = *km_emu_defaults();
  record.grid = shape.grid, record.block = shape.block;
  record.shared = (u32)shape.shared;
  record.cooperative = cooperative;
  if (shape.shared <= shared_limit && shape.block.z <= 64 && shape.grid.y <= 65535 && shape.grid.z <= 65535) return cudaSuccess;
  return keep(cudaErrorInvalidConfiguration);
}
inline cudaError_t conclude(const Launch& record, const Shape& shape) {
  if (record.status == fine) return cudaSuccess;
  const bool refused = record.status == misused && (usize)shape.block.x * shape.block.y * shape.block.z > 1024;
  if (refused || (u64)shape.block.x * shape.block.y * shape.block.z * shape.grid.x * shape.grid.y * shape.grid.z == 0)
    return keep(cudaErrorInvalidConfiguration);
  fflush(stdout);
  fprintf(stderr, "kernelmill emulator: %s\n", record.message);
  broken = record.status == failed_assertion ? cudaErrorAssert : cudaErrorLaunchFailure;
  return keep(broken);
}
template <class K, class... A>
cudaError_t launch_as(Shape shape, bool cooperative, K&& kernel, A... arguments) {
  Launch record;
  if (const cudaError_t error = prepare(record, shape, cooperative)) return error;
  start(record, [kernel, arguments...]() { kernel(arguments...); });
  return conclude(record, shape);
}
// What is copied or ends in a way of its own goes to threads bit by bit, as to a GPU: its functions are the host's. To a
// caller a function that returns such a class is one that fills memory, and what it returns is copied nowhere.
template <class T>
struct Bits {
  static void* fill(void* out, const T* from) { return __builtin_memcpy(out, (const void*)from, sizeof(T)); }
  KM_EMU_INLINE static T of(const T& value) {
    void* (*made)(void*, const T*) = fill;
    __asm__("" : "+r"(made));
    return ((T(*)(const T*))made)(&value);
  }
};
template <class T>
KM_EMU_INLINE decltype(auto) passed(T& argument) {
#if defined(__x86_64__)
  if constexpr (__is_class(T) && !(__has_trivial_copy(T) && __has_trivial_destructor(T)))
    return Bits<typename bare<T>::type>::of(argument);
  else return (argument);
#else
  return (argument);
#endif
}
// Where what a kernel takes by reference lies: found on the host, whose own variables no thread reads.
template <class T> T* place_of(T& argument) { return __builtin_addressof(argument); }
template <class T> struct Held {
  T value;
  T& operator*() const { return const_cast<T&>(value); }
};
template <class T> Held<T> place_of(const T&& argument) { return {argument}; }

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
    if (const cudaError_t error = prepare(record, shape, cooperative)) return error;
    found->run(&record, arguments);
    return conclude(record, shape);
  }
  return keep(cudaErrorInvalidDeviceFunction);
}

template <class T> using bare_of = typename bare<T>::type;
template <int... I> struct Places {};
template <int N, int... I> struct CountPlaces : CountPlaces<N - 1, N - 1, I...> {};
template <int... I> struct CountPlaces<0, I...> { typedef Places<I...> type; };
template <class... P, int... I>
cudaError_t launch_packed(void (*kernel)(P...), Shape shape, bool cooperative, void** arguments, Places<I...>) {
  return launch_as(shape, cooperative, kernel, *(bare_of<P>*)arguments[I]...);
}

}  // namespace km_emu

// ---- errors and devices ---------------------------------------------------------------------------------------------

inline cudaError_t cudaGetLastError() {
  const cudaError_t error = km_emu::last_error;
  km_emu::last_error = km_emu::broken;
  return error;
}
inline cudaError_t cudaPeekAtLastError() { return km_emu::last_error; }
inline cudaError_t cudaDeviceSynchronize() { return km_emu::broken; }
inline cudaError_t cudaThreadSynchronize() { return km_emu::broken; }
#define KM_EMU_NAMED(name, number, text) \
  case name: return #name;
inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) { KM_EMU_ERRORS(KM_EMU_NAMED) }
  return "unrecognized error code";
}
#undef KM_EMU_NAMED
#define KM_EMU_NAMED(name, number, text) \
  case name: return text;
inline const char* cudaGetErrorString(cudaError_t error) {
  switch (error) { KM_EMU_ERRORS(KM_EMU_NAMED) }
  return "unrecognized error code";
}
#undef KM_EMU_NAMED
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : km_emu::keep(cudaErrorInvalidDevice); }
inline cudaError_t cudaSetValidDevices(int*, int) { return cudaSuccess; }
inline cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
inline cudaError_t cudaDeviceReset() {
  km_emu::broken = km_emu::last_error = cudaSuccess;
  return cudaSuccess;
}
inline cudaError_t cudaThreadExit() { return cudaDeviceReset(); }
inline cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return km_emu::keep(cudaErrorInvalidDevice); }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return km_emu::keep(cudaErrorInvalidDevice); }
inline cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = cudaDeviceMapHost;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  *config = cudaSharedMemBankSizeFourByte;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  *value = limit == cudaLimitStackSize ? 65536 : (size_t)8 << 20;
  return cudaSuccess;
}
inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
inline cudaError_t cudaDeviceGetPCIBusId(char* out, int length, int) {
  snprintf(out, (size_t)length, "0000:00:00.0");
  return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (device != 0) return km_emu::keep(cudaErrorInvalidDevice);
  *out = cudaDeviceProp();
  strcpy(out->name, "kernelmill emulator");
  out->totalGlobalMem = (size_t)8 << 30;
  out->sharedMemPerBlock = 48 << 10, out->reservedSharedMemPerBlock = 1 << 10;
  out->sharedMemPerBlockOptin = out->sharedMemPerMultiprocessor = km_emu::shared_limit;
  out->totalConstMem = 64 << 10, out->memPitch = 0x7fffffff;
  out->textureAlignment = out->surfaceAlignment = 512, out->texturePitchAlignment = 32;
  out->regsPerBlock = out->regsPerMultiprocessor = 65536, out->warpSize = 32;
  out->maxThreadsPerBlock = 1024, out->maxThreadsPerMultiProcessor = 2048, out->maxBlocksPerMultiProcessor = 32;
  out->multiProcessorCount = km_emu::multiprocessors, out->major = 9, out->minor = 0;
  out->clockRate = out->memoryClockRate = 1000000, out->memoryBusWidth = 256, out->l2CacheSize = 4 << 20;
  out->cooperativeLaunch = out->concurrentKernels = out->unifiedAddressing = out->managedMemory = 1;
  out->canMapHostMemory = out->concurrentManagedAccess = out->hostRegisterSupported = out->memoryPoolsSupported = 1;
  out->asyncEngineCount = out->deviceOverlap = out->streamPrioritiesSupported = out->unifiedFunctionPointers = 1;
  out->globalL1CacheSupported = out->localL1CacheSupported = 1, out->singleToDoublePrecisionPerfRatio = 2;
  out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024, out->maxThreadsDim[2] = 64;
  out->maxGridSize[0] = 0x7fffffff, out->maxGridSize[1] = out->maxGridSize[2] = 65535;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp all;
  const cudaError_t error = cudaGetDeviceProperties(&all, device);
  if (error) return error;
  *out = 0;
#define KM_EMU_NAMED(name, number, property) \
  case number: *out = (int)all.property; return cudaSuccess;
  switch ((int)attribute) { KM_EMU_ATTRIBUTES(KM_EMU_NAMED) }
#undef KM_EMU_NAMED
  return attribute > 0 && attribute < 200 ? cudaSuccess : km_emu::keep(cudaErrorInvalidValue);
}

// ---- streams and events ---------------------------------------------------------------------------------------------

inline cudaError_t cudaStreamCreate(cudaStream_t* out) {
  *out = (cudaStream_t)calloc(1, 16);
  return km_emu::broken;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) { return cudaStreamCreate(out); }
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) { return cudaStreamCreate(out); }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return km_emu::broken; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return km_emu::broken; }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if ((size_t)stream > 2) free((void*)stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return km_emu::broken; }
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) {
  *flags = cudaStreamDefault;
  return cudaSuccess;
}
template <class... A> cudaError_t cudaStreamSetAttribute(A...) { return cudaSuccess; }
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
inline cudaError_t cudaEventCreate(cudaEvent_t* out, unsigned = cudaEventDefault) {
  *out = (cudaEvent_t)calloc(1, sizeof(CUevent_st));
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return cudaEventCreate(out); }
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
  event->nanoseconds = km_emu_clock();
  return km_emu::broken;
}
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr, unsigned = 0) {
  return cudaEventRecord(event, stream);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return km_emu::broken; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return km_emu::broken; }
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from->nanoseconds || !to->nanoseconds) return km_emu::keep(cudaErrorInvalidResourceHandle);
  *milliseconds = (float)((double)(to->nanoseconds - from->nanoseconds) * 1e-6);
  return cudaSuccess;
}

// ---- launches by function -------------------------------------------------------------------------------------------

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                             cudaStream_t stream = nullptr) {
  return km_emu::launch_packed(kernel, km_emu::Shape(grid, block, shared, stream), false, arguments,
                               typename km_emu::CountPlaces<(int)sizeof...(P)>::type());
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                                        cudaStream_t stream = nullptr) {
  return km_emu::launch_packed(kernel, km_emu::Shape(grid, block, shared, stream), true, arguments,
                               typename km_emu::CountPlaces<(int)sizeof...(P)>::type());
}
inline cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0,
                                    cudaStream_t stream = nullptr) {
  return km_emu::launch_registered(kernel, km_emu::Shape(grid, block, shared, stream), false, arguments);
}
inline cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                               size_t shared = 0, cudaStream_t stream = nullptr) {
  return km_emu::launch_registered(kernel, km_emu::Shape(grid, block, shared, stream), true, arguments);
}
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const cudaLaunchAttribute& a = config->attrs[i];
    if (a.id == cudaLaunchAttributeCooperative) cooperative = a.val.cooperative != 0;
    if (a.id == cudaLaunchAttributeClusterDimension && a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z > 1)
      return km_emu::keep(cudaErrorNotSupported);
  }
  const km_emu::Shape shape(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
  return km_emu::launch_as(shape, cooperative, kernel, km_emu::bare_of<P>(arguments)...);
}
template <class F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute what, int value) {
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value <= km_emu::shared_limit) return cudaSuccess;
  return km_emu::keep(cudaErrorInvalidValue);
}
template <class F> cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncSetSharedMemConfig(F, cudaSharedMemConfig) { return cudaSuccess; }
template <class F> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, F) {
  *out = cudaFuncAttributes();
  out->maxThreadsPerBlock = 1024, out->numRegs = 32, out->maxDynamicSharedSizeBytes = km_emu::shared_limit;
  out->ptxVersion = out->binaryVersion = 90;
  return cudaSuccess;
}

// ---- occupancy: a multiprocessor holds as many blocks as have room for their threads and shared memory ------------------

template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, F, int threads, size_t shared) {
  const int whole = (threads + 31) / 32 * 32, fit = threads > 0 && threads <= 1024 ? 2048 / whole : 0;
  const int room = shared ? (int)((size_t)km_emu::shared_limit / shared) : 32;
  *blocks = fit < room ? fit : room;
  return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, F f, int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared);
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, size_t = 0, int limit = 0) {
  *block = limit > 0 && limit < 256 ? limit : 256;
  *grid = km_emu::multiprocessors * (2048 / *block);
  return cudaSuccess;
}
template <class F>
cudaError_t cudaOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, F f, size_t shared = 0, int limit = 0,
                                                        unsigned = 0) {
  return cudaOccupancyMaxPotentialBlockSize(grid, block, f, shared, limit);
}
template <class S, class F>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, F f, S, int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSize(grid, block, f, 0, limit);
}
template <class F>
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, F, int blocks, int) {
  *bytes = (size_t)km_emu::shared_limit / (size_t)(blocks > 0 ? blocks : 1);
  return cudaSuccess;
}
