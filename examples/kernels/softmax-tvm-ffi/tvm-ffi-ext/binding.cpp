#include "softmax.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

using tvm::ffi::TensorView;

namespace {

// Returns the number of rows.
std::int64_t check(TensorView out, TensorView x) {
  for (TensorView array : {out, x}) {
    const DLDataType dtype = array.dtype();
    if (dtype.code != kDLFloat || dtype.bits != 32 || dtype.lanes != 1)
      TVM_FFI_THROW(TypeError) << "softmax: float32 only";
    if (!array.IsContiguous()) TVM_FFI_THROW(ValueError) << "softmax: contiguous arrays only";
    if (array.ndim() != 2) TVM_FFI_THROW(ValueError) << "softmax: arrays must be (rows, width)";
  }
  if (out.size(0) != x.size(0) || out.size(1) != x.size(1))
    TVM_FFI_THROW(ValueError) << "softmax: the result must have the shape of the argument";
  return x.size(1) == 0 ? 0 : x.size(0);
}

void on_cpu(TensorView out, TensorView x) {
  const auto rows = check(out, x);
  softmax_on_cpu(static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), rows, x.size(1));
}

#ifdef CUDA_KERNEL
void on_cuda(TensorView out, TensorView x) {
  const auto rows = check(out, x);
  const DLDevice device = x.device();
  void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  const int error = softmax_on_cuda(static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), rows,
                                    x.size(1), stream);
  if (error != 0) TVM_FFI_THROW(RuntimeError) << "softmax: CUDA error " << error;
}
#endif

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax_cpu, on_cpu);
#ifdef CUDA_KERNEL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(softmax_cuda, on_cuda);
#endif
