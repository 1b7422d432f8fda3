// host_memory.hpp - the memory of CUDA's runtime API: allocations, copies, symbols, pools. All is memory of the host, and is
// done at once. Launches, streams and devices are in host_api.hpp.
#pragma once
#include <stdlib.h>
#include <string.h>

#include "device.hpp"
#include "host_types.hpp"

extern "C" void km_emu_register(void* at, size_t bytes, const char* name);
extern "C" void km_emu_unregister(void* at);
extern "C" void km_emu_written(const void* at, size_t bytes);
extern "C" bool km_emu_on_device();

namespace km_emu {

constexpr size_t allocation = 256, guard = 512, poisoned = 4 << 20;

inline cudaError_t last_error = cudaSuccess;
inline cudaError_t broken = cudaSuccess;  // a launch failed: nothing works any more, as on a GPU
inline cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// What stands before each allocation; they are in one list.
struct Allocation {
  Allocation* next;
  size_t bytes;
  cudaMemoryType type;
};
inline Allocation* allocations;
inline int allocations_lock;
struct Locked {
  Locked() {
    while (__atomic_exchange_n(&allocations_lock, 1, __ATOMIC_ACQUIRE)) {
    }
  }
  ~Locked() { __atomic_store_n(&allocations_lock, 0, __ATOMIC_RELEASE); }
};
inline char* begin_of(const Allocation* a) { return (char*)a + allocation; }
inline Allocation* allocation_at(const void* at) {
  Locked now;
  for (Allocation* a = allocations; a; a = a->next)
    if ((size_t)((const char*)at - begin_of(a)) < a->bytes || at == begin_of(a)) return a;
  return nullptr;
}

// Fresh memory of the device is filled with a pattern, so that what reads it before it is written goes wrong visibly. What the
// host writes itself counts as written.
inline void* allocated(size_t bytes, const char* name, cudaMemoryType type) {
  const size_t whole = allocation + ((bytes + allocation - 1) & ~(allocation - 1)) + guard;
  char* low = bytes < (size_t)1 << 47 ? (char*)aligned_alloc(allocation, whole) : nullptr;
  if (!low) return nullptr;
  if (type != cudaMemoryTypeDevice) memset(low + allocation, 0, bytes);
  else if (bytes <= poisoned) memset(low + allocation, 0xcd, bytes + guard);
  Allocation* made = (Allocation*)low;
  made->bytes = bytes, made->type = type;
  {
    Locked now;
    made->next = allocations;
    allocations = made;
  }
  km_emu_register(begin_of(made), bytes, name);
  if (type != cudaMemoryTypeDevice) km_emu_written(begin_of(made), bytes);
  return begin_of(made);
}
template <class T>
cudaError_t allocate(T** out, size_t bytes, const char* name, cudaMemoryType type = cudaMemoryTypeDevice) {
  if (broken) return broken;
  if (!out) return keep(cudaErrorInvalidValue);
  *out = bytes ? (T*)allocated(bytes, name, type) : nullptr;
  return *out || !bytes ? cudaSuccess : keep(cudaErrorMemoryAllocation);
}
// A class that frees its memory when it ends may be passed to a kernel by value. On a GPU that copy never ends.
inline cudaError_t release(void* at) {
  if (!at || km_emu_on_device()) return broken;
  Allocation* found = nullptr;
  {
    Locked now;
    for (Allocation** link = &allocations; *link; link = &(*link)->next) {
      if (begin_of(*link) != at) continue;
      found = *link;
      *link = found->next;
      break;
    }
  }
  if (!found) return keep(cudaErrorInvalidValue);
  km_emu_unregister(at);
  free(found);
  return broken;
}

inline cudaError_t move(void* to, const void* from, size_t bytes) {
  if (broken) return broken;
  if (!bytes) return cudaSuccess;  // of memmove no argument may be null, so that the compiler would believe it below
  if (!to || !from) return keep(cudaErrorInvalidValue);
  memmove(to, from, bytes);
  km_emu_written(to, bytes);
  return cudaSuccess;
}
inline cudaError_t fill(void* at, int value, size_t bytes) {
  if (broken) return broken;
  if (!bytes) return cudaSuccess;
  if (!at) return keep(cudaErrorInvalidValue);
  memset(at, value, bytes);
  km_emu_written(at, bytes);
  return cudaSuccess;
}
constexpr size_t pitch_of(size_t width) { return (width + 511) & ~(size_t)511; }

}  // namespace km_emu

// ---- allocations: as functions, and as macros that know what the pointer is called ----------------------------------

template <class T> cudaError_t cudaMalloc(T** out, size_t bytes) { return km_emu::allocate(out, bytes, "memory"); }
template <class T> cudaError_t cudaMallocManaged(T** out, size_t bytes, unsigned = cudaMemAttachGlobal) {
  return km_emu::allocate(out, bytes, "managed memory", cudaMemoryTypeManaged);
}
template <class T> cudaError_t cudaMallocAsync(T** out, size_t bytes, cudaStream_t) {
  return km_emu::allocate(out, bytes, "memory");
}
template <class T> cudaError_t cudaMallocAsync(T** out, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return km_emu::allocate(out, bytes, "memory");
}
template <class T> cudaError_t cudaMallocFromPoolAsync(T** out, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return km_emu::allocate(out, bytes, "memory");
}
inline cudaError_t cudaFree(void* at) { return km_emu::release(at); }
inline cudaError_t cudaFreeAsync(void* at, cudaStream_t) { return km_emu::release(at); }
template <class T> cudaError_t cudaMallocHost(T** out, size_t bytes, unsigned = 0) {
  return km_emu::allocate(out, bytes, "host memory", cudaMemoryTypeHost);
}
template <class T> cudaError_t cudaHostAlloc(T** out, size_t bytes, unsigned) { return cudaMallocHost(out, bytes); }
inline cudaError_t cudaFreeHost(void* at) { return km_emu::release(at); }
template <class T> cudaError_t cudaHostGetDevicePointer(T** out, void* at, unsigned) {
  *out = (T*)at;
  return cudaSuccess;
}
inline cudaError_t cudaHostGetFlags(unsigned* flags, void*) {
  *flags = cudaHostAllocMapped;
  return cudaSuccess;
}
inline cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned) {
  km_emu_register(at, bytes, "host memory");
  km_emu_written(at, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void* at) {
  km_emu_unregister(at);
  return cudaSuccess;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* at) {
  const km_emu::Allocation* found = km_emu::allocation_at(at);
  *out = cudaPointerAttributes();
  if (!found) return out->device = cudaInvalidDeviceId, out->hostPointer = (void*)at, cudaSuccess;
  out->type = found->type;
  out->devicePointer = (void*)at;
  if (found->type != cudaMemoryTypeDevice) out->hostPointer = (void*)at;
  return cudaSuccess;
}
template <class T> cudaError_t cudaMallocPitch(T** out, size_t* pitch, size_t width, size_t height) {
  *pitch = km_emu::pitch_of(width);
  return km_emu::allocate(out, *pitch * height, "pitched array");
}
inline cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  const size_t pitch = km_emu::pitch_of(extent.width);
  *out = make_cudaPitchedPtr(nullptr, pitch, extent.width, extent.height);
  return km_emu::allocate(&out->ptr, pitch * extent.height * extent.depth, "pitched array");
}
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = (size_t)8 << 30;
  return cudaSuccess;
}

// ---- copies and fills -----------------------------------------------------------------------------------------------

inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return km_emu::move(to, from, bytes);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr) {
  return km_emu::move(to, from, bytes);
}
inline cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) { return km_emu::move(to, from, bytes); }
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t = nullptr) {
  return km_emu::move(to, from, bytes);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                                cudaMemcpyKind) {
  if (width > to_pitch || width > from_pitch) return km_emu::keep(cudaErrorInvalidPitchValue);
  cudaError_t error = km_emu::broken;
  for (size_t y = 0; y < height && !error; y++)
    error = km_emu::move((char*)to + y * to_pitch, (const char*)from + y * from_pitch, width);
  return error;
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  if (p->srcArray || p->dstArray) return km_emu::keep(cudaErrorNotSupported);
  const auto row = [](const cudaPitchedPtr& at, const cudaPos& from, size_t y, size_t z) {
    return (char*)at.ptr + ((from.z + z) * at.ysize + from.y + y) * at.pitch + from.x;
  };
  cudaError_t error = km_emu::broken;
  for (size_t z = 0; z < p->extent.depth; z++)
    for (size_t y = 0; y < p->extent.height && !error; y++)
      error = km_emu::move(row(p->dstPtr, p->dstPos, y, z), row(p->srcPtr, p->srcPos, y, z), p->extent.width);
  return error;
}
inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t = nullptr) { return cudaMemcpy3D(p); }
inline cudaError_t cudaMemset(void* at, int value, size_t bytes) { return km_emu::fill(at, value, bytes); }
inline cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t = nullptr) {
  return km_emu::fill(at, value, bytes);
}
inline cudaError_t cudaMemset2D(void* at, size_t pitch, int value, size_t width, size_t height) {
  cudaError_t error = km_emu::broken;
  for (size_t y = 0; y < height && !error; y++) error = km_emu::fill((char*)at + y * pitch, value, width);
  return error;
}
inline cudaError_t cudaMemset2DAsync(void* at, size_t pitch, int value, size_t width, size_t height, cudaStream_t = nullptr) {
  return cudaMemset2D(at, pitch, value, width, height);
}
inline cudaError_t cudaMemset3D(cudaPitchedPtr at, int value, cudaExtent extent) {
  return cudaMemset2D(at.ptr, at.pitch, value, extent.width, at.ysize * (extent.depth ? extent.depth - 1 : 0) + extent.height);
}
inline cudaError_t cudaMemset3DAsync(cudaPitchedPtr at, int value, cudaExtent extent, cudaStream_t = nullptr) {
  return cudaMemset3D(at, value, extent);
}

// ---- symbols: `__device__` and `__constant__` variables -------------------------------------------------------------

template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
  return km_emu::move((char*)&symbol + offset, from, bytes);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  return km_emu::move(to, (const char*)&symbol + offset, bytes);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind,
                                    cudaStream_t = nullptr) {
  return km_emu::move((char*)&symbol + offset, from, bytes);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset, cudaMemcpyKind,
                                      cudaStream_t = nullptr) {
  return km_emu::move(to, (const char*)&symbol + offset, bytes);
}
template <class A, class T> cudaError_t cudaGetSymbolAddress(A** out, const T& symbol) {
  *out = (A*)&symbol;
  return cudaSuccess;
}
template <class T> cudaError_t cudaGetSymbolSize(size_t* bytes, const T&) {
  *bytes = sizeof(T);
  return cudaSuccess;
}

// ---- pools and hints: there is one memory ---------------------------------------------------------------------------

inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = (cudaMemPool_t)8;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
inline cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return cudaSuccess; }
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  return cudaDeviceGetDefaultMemPool(pool, 0);
}
inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *(unsigned long long*)value = 0;
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
template <class... A> cudaError_t cudaMemPrefetchAsync(A...) { return km_emu::broken; }
template <class... A> cudaError_t cudaMemAdvise(A...) { return km_emu::broken; }

// Last, so that the functions above are declared by their names.
#define cudaMalloc(out, ...) km_emu::allocate((out), (__VA_ARGS__), #out)
#define cudaMallocAsync(out, bytes, ...) km_emu::allocate((out), (bytes), #out)
#define cudaMallocManaged(out, bytes, ...) km_emu::allocate((out), (bytes), #out, cudaMemoryTypeManaged)
