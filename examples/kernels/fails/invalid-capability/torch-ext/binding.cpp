#include "registration.h"
#include "relu.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#ifdef CUDA_KERNEL
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#endif

using torch::stable::Tensor;

namespace {

void check(const Tensor& out, const Tensor& x) {
  constexpr auto f32 = torch::headeronly::ScalarType::Float;
  STD_TORCH_CHECK(x.scalar_type() == f32 && out.scalar_type() == f32, "relu: float32 only");
  STD_TORCH_CHECK(x.is_contiguous() && out.is_contiguous(), "relu: contiguous tensors only");
  STD_TORCH_CHECK(x.numel() == out.numel(), "relu: the result has another size than the argument");
}

void on_cpu(Tensor out, Tensor x) {
  check(out, x);
  relu_on_cpu(static_cast<const float*>(x.const_data_ptr()), static_cast<float*>(out.mutable_data_ptr()), x.numel());
}

#ifdef CUDA_KERNEL
void on_cuda(Tensor out, Tensor x) {
  check(out, x);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  const int error = relu_on_cuda(static_cast<const float*>(x.const_data_ptr()),
                                 static_cast<float*>(out.mutable_data_ptr()), x.numel(), stream);
  STD_TORCH_CHECK(error == 0, "relu: CUDA error ", error);
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library) { library.def("relu(Tensor! out, Tensor x) -> ()"); }
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, library) { library.impl("relu", TORCH_BOX(&on_cpu)); }
#ifdef CUDA_KERNEL
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, library) { library.impl("relu", TORCH_BOX(&on_cuda)); }
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
