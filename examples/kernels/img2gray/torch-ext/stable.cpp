// The operator as torch sees it, on the stable ABI: one build for every torch from 2.10 on.
#include "registration.h"
#include "img2gray.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#ifdef CUDA_KERNEL
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#endif

using torch::stable::Tensor;

namespace {

const std::uint8_t* read(const Tensor& image) { return static_cast<const std::uint8_t*>(image.const_data_ptr()); }
std::uint8_t* write(const Tensor& grey) { return static_cast<std::uint8_t*>(grey.mutable_data_ptr()); }

void check(const Tensor& image, const Tensor& grey) {
  constexpr auto bytes = torch::headeronly::ScalarType::Byte;
  STD_TORCH_CHECK(image.dim() == 3 && image.size(2) == 3, "img2gray: the image must be (height, width, 3)");
  STD_TORCH_CHECK(image.scalar_type() == bytes && grey.scalar_type() == bytes, "img2gray: uint8 only");
  STD_TORCH_CHECK(image.is_contiguous() && grey.is_contiguous(), "img2gray: contiguous tensors only");
  STD_TORCH_CHECK(grey.dim() == 2 && grey.size(0) == image.size(0) && grey.size(1) == image.size(1),
                  "img2gray: the result must be (height, width)");
}

void on_cpu(Tensor image, Tensor grey) {
  check(image, grey);
  img2gray_on_cpu(read(image), write(grey), image.size(0), image.size(1));
}

#ifdef CUDA_KERNEL
void on_cuda(Tensor image, Tensor grey) {
  check(image, grey);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(image.get_device_index(), &stream));
  const int error = img2gray_on_cuda(read(image), write(grey), image.size(0), image.size(1), stream);
  STD_TORCH_CHECK(error == 0, "img2gray: CUDA error ", error);
}
#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library) {
  library.def("img2gray(Tensor image, Tensor! grey) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, library) {
  library.impl("img2gray", TORCH_BOX(&on_cpu));
}
#ifdef CUDA_KERNEL
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, library) {
  library.impl("img2gray", TORCH_BOX(&on_cuda));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
