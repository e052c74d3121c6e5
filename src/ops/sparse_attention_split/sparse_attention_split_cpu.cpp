#include <array>
#include <limits>

#include "base/lanes/lanes.h"
#include "base/math.h"
#include "ops/sparse_attention/gather_keys.h"
#include "ops/sparse_attention_split/sparse_attention_split.h"

namespace plumb {
namespace {

using SplitStarts = std::array<std::int64_t, kMaxSplits + 1>;

#define PLUMB_KERNELS "ops/sparse_attention_split/sparse_attention_split_cpu.inc"
#include "base/lanes/each_isa.inc"

void attend(const SparseAttention& a, std::int64_t t, const SplitStarts& starts, const AttentionParts& parts) {
  PLUMB_ON_BEST_ISA(attend_splits(a, t, starts, parts));
}

}  // namespace

void attention_parts_cpu(const SparseAttention& a, std::int64_t t, const AttentionParts& parts) {
  SplitStarts starts{};
  for_each_key(a, t, [&](const AttentionKey& key) { ++starts[static_cast<std::size_t>(split_of(key) + 1)]; });
  for (std::size_t s = 0; s < kMaxSplits; ++s) starts[s + 1] += starts[s];
  SplitStarts next = starts;
  gather_keys(a, t, [&](const AttentionKey& key) { return next[static_cast<std::size_t>(split_of(key))]++; });
  attend(a, t, starts, parts);
}

void sparse_attention_split_cpu(const SparseAttention& a) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2);
  CHECK(heads <= kMaxHeads && a.out.extents() == a.q.extents() && a.sinks.extent(0) == heads);
  a.scratch->parts.resize(static_cast<std::size_t>(kMaxSplits * heads * dim));
  float lse[kMaxSplits * kMaxHeads];
  const AttentionParts parts{View<float, 4>(a.scratch->parts.data(), {kMaxSplits, 1, heads, dim}),
                             View<float, 3>(lse, {kMaxSplits, 1, heads})};
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    attention_parts_cpu(a, t, parts);
    merge_splits_cpu({.part = parts.part, .lse = parts.lse, .sink = a.sinks, .out = a.out.rows(t, t + 1)});
  }
}

}  // namespace plumb
