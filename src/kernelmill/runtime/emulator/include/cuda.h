// The emulator's form of this header: the driver's API is not emulated, but for the names of its results.
#pragma once
#include "emulator/device.hpp"

#define CUDA_VERSION 13000
#define CUDAAPI
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NOT_SUPPORTED = 801 };
typedef int CUdevice;
inline CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
inline CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_NOT_SUPPORTED";
  return CUDA_SUCCESS;
}
inline CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }
