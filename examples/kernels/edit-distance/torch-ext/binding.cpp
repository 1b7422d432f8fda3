#include "edit_distance.h"
#include "registration.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

namespace {

using torch::headeronly::ScalarType;

std::int64_t check(const Tensor& bytes, const Tensor& lengths, const Tensor& out) {
  STD_TORCH_CHECK(bytes.scalar_type() == ScalarType::Byte && bytes.dim() == 2 && bytes.is_contiguous(),
                  "edit_distance: strings must be (batch, longest) of uint8, contiguous");
  STD_TORCH_CHECK(lengths.scalar_type() == ScalarType::Long && lengths.dim() == 1 && lengths.is_contiguous() &&
                      lengths.size(0) == bytes.size(0) && out.size(0) == bytes.size(0),
                  "edit_distance: lengths must be (batch) of int64, contiguous");
  return bytes.size(1);
}

void edit_distances(Tensor out, Tensor a, Tensor a_lengths, Tensor b, Tensor b_lengths) {
  STD_TORCH_CHECK(out.scalar_type() == ScalarType::Int && out.dim() == 1 && out.is_contiguous(),
                  "edit_distance: the result must be (batch) of int32, contiguous");
  const auto longest_a = check(a, a_lengths, out), longest_b = check(b, b_lengths, out);
  const auto* text_a = static_cast<const std::uint8_t*>(a.const_data_ptr());
  const auto* text_b = static_cast<const std::uint8_t*>(b.const_data_ptr());
  const auto* n = static_cast<const std::int64_t*>(a_lengths.const_data_ptr());
  const auto* m = static_cast<const std::int64_t*>(b_lengths.const_data_ptr());
  auto* found = static_cast<std::int32_t*>(out.mutable_data_ptr());
  std::vector<std::int32_t> row(static_cast<std::size_t>(longest_b) + 1);
  for (std::int64_t i = 0; i < out.size(0); ++i) {
    STD_TORCH_CHECK(n[i] >= 0 && n[i] <= longest_a && m[i] >= 0 && m[i] <= longest_b,
                    "edit_distance: length ", i, " is beyond its string");
    found[i] = edit_distance(text_a + i * longest_a, n[i], text_b + i * longest_b, m[i], row);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, library) {
  library.def("edit_distances(Tensor! out, Tensor a, Tensor a_lengths, Tensor b, Tensor b_lengths) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, library) {
  library.impl("edit_distances", TORCH_BOX(&edit_distances));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
