#include <bit>
#include <limits>
#include <numeric>

#include "base/lanes/lanes.h"
#include "ops/select_topk/best_rows.h"
#include "ops/select_topk/select_topk.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/select_topk/select_topk_cpu.inc"
#include "base/lanes/each_isa.inc"

void best_rows(const float* scores, std::int64_t count, std::int64_t k, std::int32_t* images, std::int32_t* selected) {
  PLUMB_ON_BEST_ISA(select_row(scores, count, k, images, selected));
}

std::int32_t best_places(const std::int32_t* images, std::int64_t count, std::int64_t k, std::int32_t* places) {
  PLUMB_ON_BEST_ISA(places_of_best(images, count, k, places));
}

std::int64_t append(const float* scores, std::int32_t first, std::int64_t count, std::int32_t least,
                    std::int32_t* images, std::int32_t* rows, std::int64_t size) {
  PLUMB_ON_BEST_ISA(append_above(scores, first, count, least, images, rows, size));
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

BestRows::BestRows(std::int64_t k)
    : k_(k),
      images_(static_cast<std::size_t>(2 * k + 2 * kMaxOffer)),
      rows_(static_cast<std::size_t>(2 * k + 2 * kMaxOffer)) {}

void BestRows::offer(const float* scores, std::int32_t first, std::int64_t count) {
  CHECK(count <= kMaxOffer);
  if (k_ == 0) return;
  // Later rows lose ties, so a row has to be above the k-th best. The lowest image of all is that of no score.
  const std::int32_t least = full_ ? least_ : std::numeric_limits<std::int32_t>::min();
  size_ = append(scores, first, count, least, images_.data(), rows_.data(), size_);
  if (size_ > 2 * k_ + kMaxOffer - 1) keep_best();
}

// Leaves the best k, in ascending order of their rows.
void BestRows::keep_best() {
  if (size_ <= k_) return;
  std::vector<std::int32_t> places(static_cast<std::size_t>(k_ + 1));
  least_ = best_places(images_.data(), size_, k_, places.data());
  for (std::int64_t i = 0; i < k_; ++i) {
    const auto from = static_cast<std::size_t>(places[static_cast<std::size_t>(i)]), to = static_cast<std::size_t>(i);
    images_[to] = images_[from];
    rows_[to] = rows_[from];
  }
  size_ = k_;
  full_ = true;
}

void BestRows::write(std::int32_t* selected) {
  keep_best();
  std::fill_n(selected, k_ - size_, -1);
  std::copy_n(rows_.begin(), size_, selected + k_ - size_);
}

}  // namespace plumb
