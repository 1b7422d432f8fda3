#include "gemm.h"
#include "registration.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#ifdef CUDA_KERNEL
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#endif

#include <climits>

using torch::stable::Tensor;

namespace {

const std::uint16_t* read(const Tensor& x) { return static_cast<const std::uint16_t*>(x.const_data_ptr()); }
std::uint16_t* write(const Tensor& x) { return static_cast<std::uint16_t*>(x.mutable_data_ptr()); }
int side(const Tensor& x, int axis) { return static_cast<int>(x.size(axis)); }

// Returns whether there is anything to do.
bool check(const Tensor& c, const Tensor& a, const Tensor& b) {
  for (const Tensor& x : {c, a, b}) {
    STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Half, "gemm: float16 only");
    STD_TORCH_CHECK(x.dim() == 2 && x.is_contiguous(), "gemm: contiguous matrices only");
    STD_TORCH_CHECK(x.size(0) <= INT_MAX && x.size(1) <= INT_MAX, "gemm: a side is beyond 2^31 - 1");
  }
  STD_TORCH_CHECK(a.size(1) == b.size(0) && c.size(0) == a.size(0) && c.size(1) == b.size(1),
                  "gemm: the sides do not fit each other");
  return c.numel() > 0;
}

void on_cpu(Tensor c, Tensor a, Tensor b) {
  if (check(c, a, b)) gemm_on_cpu(read(a), read(b), write(c), side(a, 0), side(b, 1), side(a, 1));
}

#ifdef CUDA_KERNEL
void on_cuda(Tensor c, Tensor a, Tensor b) {
  if (!check(c, a, b)) return;
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(a.get_device_index(), &stream));
  const int error = gemm_on_cuda(read(a), read(b), write(c), side(a, 0), side(b, 1), side(a, 1), stream);
  STD_TORCH_CHECK(error == 0, "gemm: CUTLASS status ", error);
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library) { library.def("gemm(Tensor! c, Tensor a, Tensor b) -> ()"); }
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, library) { library.impl("gemm", TORCH_BOX(&on_cpu)); }
#ifdef CUDA_KERNEL
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, library) { library.impl("gemm", TORCH_BOX(&on_cuda)); }
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
