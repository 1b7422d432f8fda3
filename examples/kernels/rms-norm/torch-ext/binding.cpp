#include "registration.h"
#include "rms_norm.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#ifdef CUDA_KERNEL
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#endif

using torch::stable::Tensor;

namespace {

const float* read(const Tensor& x) { return static_cast<const float*>(x.const_data_ptr()); }
float* write(const Tensor& x) { return static_cast<float*>(x.mutable_data_ptr()); }

void check(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float, "rms_norm: float32 only");
  STD_TORCH_CHECK(x.is_contiguous(), "rms_norm: contiguous tensors only");
}

// Returns the number of rows.
std::int64_t check_all(const Tensor& like, const Tensor& x, const Tensor& weight, const Tensor& scale) {
  for (const Tensor& tensor : {like, x, weight, scale}) check(tensor);
  STD_TORCH_CHECK(x.dim() == 2 && weight.dim() == 1 && weight.size(0) == x.size(1),
                  "rms_norm: x must be (rows, width) and weight (width)");
  STD_TORCH_CHECK(like.dim() == 2 && like.size(0) == x.size(0) && like.size(1) == x.size(1),
                  "rms_norm: the result must have the shape of x");
  STD_TORCH_CHECK(scale.dim() == 1 && scale.size(0) == x.size(0), "rms_norm: scale must be (rows)");
  return x.size(0);
}

void forward_on_cpu(Tensor out, Tensor scale, Tensor x, Tensor weight, double epsilon) {
  const auto rows = check_all(out, x, weight, scale);
  rms_norm_on_cpu(read(x), read(weight), write(out), write(scale), rows, x.size(1), float(epsilon));
}

void backward_on_cpu(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight, Tensor scale) {
  const auto rows = check_all(dy, x, weight, scale);
  check_all(dx, x, dweight, scale);
  rms_norm_backward_on_cpu(read(dy), read(x), read(weight), read(scale), write(dx), write(dweight), rows, x.size(1));
}

#ifdef CUDA_KERNEL
void* stream_of(const Tensor& x) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  return stream;
}

void forward_on_cuda(Tensor out, Tensor scale, Tensor x, Tensor weight, double epsilon) {
  const auto rows = check_all(out, x, weight, scale);
  const int error = rms_norm_on_cuda(read(x), read(weight), write(out), write(scale), rows, x.size(1), float(epsilon),
                                     stream_of(x));
  STD_TORCH_CHECK(error == 0, "rms_norm: CUDA error ", error);
}

void backward_on_cuda(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight, Tensor scale) {
  const auto rows = check_all(dy, x, weight, scale);
  check_all(dx, x, dweight, scale);
  const int error = rms_norm_backward_on_cuda(read(dy), read(x), read(weight), read(scale), write(dx), write(dweight),
                                              rows, x.size(1), stream_of(x));
  STD_TORCH_CHECK(error == 0, "rms_norm: CUDA error ", error);
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library) {
  library.def("forward(Tensor! out, Tensor! scale, Tensor x, Tensor weight, float epsilon) -> ()");
  library.def("backward(Tensor! dx, Tensor! dweight, Tensor dy, Tensor x, Tensor weight, Tensor scale) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, library) {
  library.impl("forward", TORCH_BOX(&forward_on_cpu));
  library.impl("backward", TORCH_BOX(&backward_on_cpu));
}
#ifdef CUDA_KERNEL
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, library) {
  library.impl("forward", TORCH_BOX(&forward_on_cuda));
  library.impl("backward", TORCH_BOX(&backward_on_cuda));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
