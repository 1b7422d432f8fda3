// device.hpp - CUDA's device language for a C++ compiler: what every rewritten text begins with. Half precision,
// cooperative groups, PTX and the host's API are in files of their own, included where a text asks for them.
#pragma once

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
#define __KERNELMILL_EMULATOR__ 1

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef KM_EMU_SANITIZER  // its lines are its own, and it reads for each thread anew where that is
#define __global__ __attribute__((noipa))
#elif defined(KM_EMU_PROGRAM)  // another file may define it, or launch it
#define __global__
#else
#define __global__ inline __attribute__((always_inline))
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __inline_hint__ inline
#define __restrict__ __restrict
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __device_builtin__
#define __cudart_builtin__
#define __align__(n) __attribute__((aligned(n)))  // `alignas` may not stand between declaration specifiers
// One block runs on an OS thread at a time, so thread-local is shared by a block.
#define __shared__ static thread_local

#include "thread.hpp"
#include "warp.hpp"
#include "atomics.hpp"
#include "integers.hpp"
#include "math.hpp"

KM_EMU_INLINE void __trap() { km_emu_trap("__trap"); }
KM_EMU_INLINE void __brkpt() { km_emu_trap("__brkpt"); }
KM_EMU_INLINE void __assume(bool) {}
KM_EMU_INLINE bool __isGlobal(const void*) { return true; }

#ifndef assert
#ifdef NDEBUG
#define assert(test) ((void)0)
#else
#define assert(test) ((test) ? (void)0 : km_emu_assert(#test, __FILE__, __LINE__, __func__))
#endif
#endif

namespace km_emu {
// Dynamic shared memory that is declared outside of functions.
template <class T>
struct Dynamic {
  operator T*() const { return (T*)KM_EMU_DYNAMIC; }
  template <class U> explicit operator U*() const { return (U*)KM_EMU_DYNAMIC; }
  template <class I> T& operator[](I i) const { return ((T*)KM_EMU_DYNAMIC)[i]; }
};
}  // namespace km_emu
