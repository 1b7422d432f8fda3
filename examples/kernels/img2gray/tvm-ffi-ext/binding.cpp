// The functions as every framework sees them that speaks DLPack.
#include "img2gray.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

using tvm::ffi::TensorView;

namespace {

const std::uint8_t* read(TensorView image) { return static_cast<const std::uint8_t*>(image.data_ptr()); }
std::uint8_t* write(TensorView grey) { return static_cast<std::uint8_t*>(grey.data_ptr()); }
bool bytes(TensorView x) { return x.dtype().code == kDLUInt && x.dtype().bits == 8 && x.dtype().lanes == 1; }

void check(TensorView image, TensorView grey) {
  if (image.ndim() != 3 || image.size(2) != 3)
    TVM_FFI_THROW(ValueError) << "img2gray: the image must be (height, width, 3)";
  if (!bytes(image) || !bytes(grey)) TVM_FFI_THROW(TypeError) << "img2gray: uint8 only";
  if (!image.IsContiguous() || !grey.IsContiguous())
    TVM_FFI_THROW(ValueError) << "img2gray: contiguous arrays only";
  if (grey.ndim() != 2 || grey.size(0) != image.size(0) || grey.size(1) != image.size(1))
    TVM_FFI_THROW(ValueError) << "img2gray: the result must be (height, width)";
}

void on_cpu(TensorView image, TensorView grey) {
  check(image, grey);
  img2gray_on_cpu(read(image), write(grey), image.size(0), image.size(1));
}

#ifdef CUDA_KERNEL
void on_cuda(TensorView image, TensorView grey) {
  check(image, grey);
  const DLDevice device = image.device();
  void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
  const int error = img2gray_on_cuda(read(image), write(grey), image.size(0), image.size(1), stream);
  if (error != 0) TVM_FFI_THROW(RuntimeError) << "img2gray: CUDA error " << error;
}
#endif

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(img2gray_cpu, on_cpu);
#ifdef CUDA_KERNEL
TVM_FFI_DLL_EXPORT_TYPED_FUNC(img2gray_cuda, on_cuda);
#endif
