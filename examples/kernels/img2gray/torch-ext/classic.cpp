// The operator as torch sees it; built for each version of torch anew.
#include "registration.h"
#include "img2gray.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>
#ifdef CUDA_KERNEL
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace {

void check(const at::Tensor& image, const at::Tensor& grey) {
  TORCH_CHECK(image.dim() == 3 && image.size(2) == 3, "img2gray: the image must be (height, width, 3)");
  TORCH_CHECK(image.scalar_type() == at::kByte && grey.scalar_type() == at::kByte, "img2gray: uint8 only");
  TORCH_CHECK(image.is_contiguous() && grey.is_contiguous(), "img2gray: contiguous tensors only");
  TORCH_CHECK(grey.dim() == 2 && grey.size(0) == image.size(0) && grey.size(1) == image.size(1),
              "img2gray: the result must be (height, width)");
}

void on_cpu(const at::Tensor& image, at::Tensor& grey) {
  check(image, grey);
  img2gray_on_cpu(image.const_data_ptr<std::uint8_t>(), grey.mutable_data_ptr<std::uint8_t>(), image.size(0),
               image.size(1));
}

#ifdef CUDA_KERNEL
void on_cuda(const at::Tensor& image, at::Tensor& grey) {
  check(image, grey);
  const c10::cuda::CUDAGuard guard(image.device());
  const int error =
      img2gray_on_cuda(image.const_data_ptr<std::uint8_t>(), grey.mutable_data_ptr<std::uint8_t>(), image.size(0),
                    image.size(1), c10::cuda::getCurrentCUDAStream().stream());
  TORCH_CHECK(error == 0, "img2gray: CUDA error ", error);
}
#endif

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library) {
  library.def("img2gray(Tensor image, Tensor! grey) -> ()");
}
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, library) {
  library.impl("img2gray", &on_cpu);
}
#ifdef CUDA_KERNEL
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, library) {
  library.impl("img2gray", &on_cuda);
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
