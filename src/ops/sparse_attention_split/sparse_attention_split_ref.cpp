#include <algorithm>
#include <array>

#include "base/math.h"
#include "ops/sparse_attention_split/sparse_attention_split.h"

namespace plumb {
namespace {

using SplitStarts = std::array<std::int64_t, kMaxSplits + 1>;

// Copies the keys of token t to the scratch, split by split, each in the order of for_each_key.
SplitStarts gather_by_split(const SparseAttention& a, std::int64_t t) {
  const std::int64_t dim = a.q.extent(2);
  SplitStarts starts{};
  for_each_key(a, t, [&](const AttentionKey& key) { ++starts[static_cast<std::size_t>(split_of(key) + 1)]; });
  for (std::size_t s = 0; s < kMaxSplits; ++s) starts[s + 1] += starts[s];
  a.scratch->keys.resize(static_cast<std::size_t>(starts.back() * dim));
  SplitStarts next = starts;
  for_each_key(a, t, [&](const AttentionKey& key) {
    key.load(a.scratch->keys.data() + next[static_cast<std::size_t>(split_of(key))]++ * dim);
  });
  return starts;
}

void one_part(const SparseAttention& a, std::int64_t split, std::int64_t begin, std::int64_t end,
              const AttentionParts& parts) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2), lanes = padded_heads(heads);
  double peak[kMaxHeads], total[kMaxHeads];
  std::fill_n(peak, heads, -math::kInfinity);
  for (std::int64_t i = begin; i < end; ++i)
    for (std::int64_t h = 0; h < heads; ++h)
      peak[h] = std::max(peak[h], a.scratch->scores[static_cast<std::size_t>(i * lanes + h)]);
  std::fill_n(total, heads, 0.0);
  weigh_keys(a, begin, end, peak, total);
  for (std::int64_t h = 0; h < heads; ++h) {
    parts.lse(split, 0, h) = static_cast<float>(peak[h] + math::log(total[h]));
    for (std::int64_t d = 0; d < dim; ++d)
      parts.part(split, 0, h, d) =
          static_cast<float>(a.scratch->sums[static_cast<std::size_t>(h * dim + d)] / total[h]);
  }
}

}  // namespace

void attention_parts_ref(const SparseAttention& a, std::int64_t t, const AttentionParts& parts) {
  const SplitStarts starts = gather_by_split(a, t);
  score_keys(a, t, starts.back());
  for (std::int64_t s = 0; s < kMaxSplits; ++s) {
    const std::int64_t begin = starts[static_cast<std::size_t>(s)], end = starts[static_cast<std::size_t>(s + 1)];
    if (begin < end)
      one_part(a, s, begin, end, parts);
    else
      std::fill_n(parts.lse.row(s), a.q.extent(1), -std::numeric_limits<float>::infinity());
  }
}

void sparse_attention_split_ref(const SparseAttention& a) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2);
  CHECK(heads <= kMaxHeads && a.out.extents() == a.q.extents() && a.sinks.extent(0) == heads);
  a.scratch->parts.resize(static_cast<std::size_t>(kMaxSplits * heads * dim));
  float lse[kMaxSplits * kMaxHeads];
  const AttentionParts parts{View<float, 4>(a.scratch->parts.data(), {kMaxSplits, 1, heads, dim}),
                             View<float, 3>(lse, {kMaxSplits, 1, heads})};
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    attention_parts_ref(a, t, parts);
    merge_splits_ref({.part = parts.part, .lse = parts.lse, .sink = a.sinks, .out = a.out.rows(t, t + 1)});
  }
}

}  // namespace plumb
