#include "registration.h"
#include "silu_and_mul.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>
#ifdef CUDA_KERNEL
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace {

std::int64_t check(const at::Tensor& out, const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat && out.scalar_type() == at::kFloat, "silu_and_mul: float32 only");
  TORCH_CHECK(x.is_contiguous() && out.is_contiguous(), "silu_and_mul: contiguous tensors only");
  TORCH_CHECK(x.dim() > 0 && x.size(-1) % 2 == 0, "silu_and_mul: the last axis must be even");
  TORCH_CHECK(2 * out.numel() == x.numel() && 2 * out.size(-1) == x.size(-1),
              "silu_and_mul: the result must be half as wide as the argument");
  return out.size(-1) == 0 ? 0 : out.numel() / out.size(-1);
}

void on_cpu(at::Tensor& out, const at::Tensor& x) {
  const auto rows = check(out, x);
  silu_and_mul_on_cpu(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), rows, out.size(-1));
}

#ifdef CUDA_KERNEL
void on_cuda(at::Tensor& out, const at::Tensor& x) {
  const auto rows = check(out, x);
  const c10::cuda::CUDAGuard guard(x.device());
  const int error = silu_and_mul_on_cuda(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), rows, out.size(-1),
                                         c10::cuda::getCurrentCUDAStream().stream());
  TORCH_CHECK(error == 0, "silu_and_mul: CUDA error ", error);
}
#endif

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library) { library.def("silu_and_mul(Tensor! out, Tensor x) -> ()"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, library) { library.impl("silu_and_mul", &on_cpu); }
#ifdef CUDA_KERNEL
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, library) { library.impl("silu_and_mul", &on_cuda); }
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
