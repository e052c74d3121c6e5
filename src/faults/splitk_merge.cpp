#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "faults/forms.h"
#include "ops/sparse_attention_split/sparse_attention_split.h"

namespace plumb::faults {
namespace {

// The online merge of one row: the sums so far are relative to the largest log-sum so far. When a later split raises
// it, they should be scaled down by exp(old - new); here they are not, so early splits weigh too much.
void merge_row_without_rescale(const MergeSplits& a, std::int64_t t, std::int64_t h) {
  const std::int64_t splits = a.part.extent(0), dim = a.part.extent(3);
  double peak = -math::kInfinity, total = 0.0;
  std::vector<double> sums(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t s = 0; s < splits; ++s) {
    const double lse = a.lse(s, t, h);
    if (lse == -math::kInfinity) continue;
    peak = std::max(peak, lse);
    const double weight = math::exp(lse - peak);
    total += weight;
    for (std::int64_t d = 0; d < dim; ++d) sums[static_cast<std::size_t>(d)] += weight * a.part(s, t, h, d);
  }
  total += math::exp(static_cast<double>(a.sink(h)) - peak);
  for (std::int64_t d = 0; d < dim; ++d) a.out(t, h, d) = static_cast<float>(sums[static_cast<std::size_t>(d)] / total);
}

void attention_no_rescale(const SparseAttention& a) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2);
  CHECK(heads <= kMaxHeads);
  a.scratch->parts.resize(static_cast<std::size_t>(kMaxSplits * heads * dim));
  std::vector<float> lse(static_cast<std::size_t>(kMaxSplits * heads));
  const AttentionParts parts{View<float, 4>(a.scratch->parts.data(), {kMaxSplits, 1, heads, dim}),
                             View<float, 3>(lse.data(), {kMaxSplits, 1, heads})};
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    attention_parts_ref(a, t, parts);
    const MergeSplits merge{.part = parts.part, .lse = parts.lse, .sink = a.sinks, .out = a.out.rows(t, t + 1)};
    for (std::int64_t h = 0; h < heads; ++h) merge_row_without_rescale(merge, 0, h);
  }
}

}  // namespace

void plant_splitk_no_rescale(const Dose&) { replace_on_side<"attention.split_k">(&attention_no_rescale); }

}  // namespace plumb::faults
