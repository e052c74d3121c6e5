#include "base/math.h"
#include "ops/merge_splits/merge_splits.h"

namespace plumb {
namespace {

void merge_row(const MergeSplits& a, std::int64_t t, std::int64_t h) {
  const std::int64_t splits = a.part.extent(0), dim = a.part.extent(3);
  const double sink = a.sink.data() == nullptr ? -math::kInfinity : static_cast<double>(a.sink(h));
  double peak = sink;
  for (std::int64_t s = 0; s < splits; ++s) peak = a.lse(s, t, h) > peak ? a.lse(s, t, h) : peak;
  // With every split empty and no sink the differences below would be NaN.
  const bool empty = peak == -math::kInfinity;
  double weight[kMaxSplits];
  double total = empty ? 1.0 : math::exp(sink - peak);
  for (std::int64_t s = 0; s < splits; ++s) total += weight[s] = empty ? 0.0 : math::exp(a.lse(s, t, h) - peak);
  for (std::int64_t d = 0; d < dim; ++d) {
    double sum = 0.0;
    for (std::int64_t s = 0; s < splits; ++s)
      if (weight[s] != 0.0) sum += weight[s] * a.part(s, t, h, d);
    a.out(t, h, d) = static_cast<float>(sum / total);
  }
}

}  // namespace

void merge_splits_ref(const MergeSplits& a) {
  CHECK(a.part.extent(0) <= kMaxSplits && a.lse.extent(0) == a.part.extent(0));
  CHECK(a.out.extent(0) == a.part.extent(1) && a.out.extent(1) == a.part.extent(2) &&
        a.out.extent(2) == a.part.extent(3));
  for (std::int64_t t = 0; t < a.out.extent(0); ++t)
    for (std::int64_t h = 0; h < a.out.extent(1); ++h) merge_row(a, t, h);
}

}  // namespace plumb
