#include "gemm.h"

#include <cutlass/gemm/device/gemm.h>

namespace {

using Half = cutlass::half_t;
using Rows = cutlass::layout::RowMajor;
using Epilogue = cutlass::epilogue::thread::LinearCombination<Half, 1, float, float>;

// Arrays may begin anywhere and rows may have any length: one element is what they are aligned to.
using Gemm = cutlass::gemm::device::Gemm<Half, Rows, Half, Rows, Half, Rows, float, cutlass::arch::OpClassSimt,
                                         cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 128, 8>,
                                         cutlass::gemm::GemmShape<32, 64, 8>, cutlass::gemm::GemmShape<1, 1, 1>,
                                         Epilogue>;

// Eight elements at a time, on the tensor cores.
using Packed = cutlass::gemm::device::Gemm<
    Half, Rows, Half, Rows, Half, Rows, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<Half, 8, float, float>>;

template <class Kernel>
int run(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* c, int m, int n, int k, void* stream) {
  const auto* left = reinterpret_cast<const Half*>(a);
  const auto* right = reinterpret_cast<const Half*>(b);
  auto* out = reinterpret_cast<Half*>(c);
  typename Kernel::Arguments arguments({m, n, k}, {left, k}, {right, n}, {out, n}, {out, n}, {1.0f, 0.0f});
  Kernel kernel;
  return int(kernel(arguments, nullptr, static_cast<cudaStream_t>(stream)));
}

}  // namespace

int gemm_on_cuda(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* c, int m, int n, int k, void* stream) {
  const auto places = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                      reinterpret_cast<std::uintptr_t>(c);
  const bool packed = places % 16 == 0 && n % 8 == 0 && k % 8 == 0;
  return packed ? run<Packed>(a, b, c, m, n, k, stream) : run<Gemm>(a, b, c, m, n, k, stream);
}
