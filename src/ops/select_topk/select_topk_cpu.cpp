#include <bit>
#include <numeric>

#include "base/lanes/lanes.h"
#include "ops/select_topk/select_topk.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/select_topk/select_topk_cpu.inc"
#include "base/lanes/each_isa.inc"

void best_rows(const float* scores, std::int64_t count, std::int64_t k, std::int32_t* images, std::int32_t* selected) {
  PLUMB_ON_BEST_ISA(select_row(scores, count, k, images, selected));
}

}  // namespace

void select_topk_cpu(const SelectTopk& a) {
  CHECK(a.scores.extent(0) == a.selected.extent(0));
  const std::int64_t k = a.selected.extent(1);
  std::vector<std::int32_t> images(static_cast<std::size_t>(a.scores.extent(1)));
  std::vector<std::int32_t> selected(static_cast<std::size_t>(k + 1));
  for (std::int64_t t = 0; t < a.scores.extent(0); ++t) {
    const std::int64_t visible = (a.first_position + t + 1) / a.rate;
    CHECK(visible <= a.scores.extent(1));
    std::int32_t* out = a.selected.row(t);
    if (visible <= k) {
      std::fill_n(out, k - visible, -1);
      std::iota(out + k - visible, out + k, 0);
    } else if (k > 0) {
      best_rows(a.scores.row(t), visible, k, images.data(), selected.data());
      std::copy_n(selected.begin(), k, out);
    }
  }
}

}  // namespace plumb
