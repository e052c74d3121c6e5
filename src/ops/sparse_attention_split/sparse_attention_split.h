#pragma once

#include "ops/merge_splits/merge_splits.h"
#include "ops/sparse_attention/sparse_attention.h"
#include "switches/on_side.h"

namespace plumb {

/// Keys are split by absolute position, so that a query's splits depend on nothing but its position and selection.
/// Window rows: blocks of 64 positions, in turn over the first kWindowSplits splits; compressed rows: blocks of 256
/// positions, in turn over the others. 1,000 tokens of context fill five or six splits.
inline constexpr std::int64_t kWindowSplits = 4;
inline constexpr std::int64_t kWindowBlock = 64;
inline constexpr std::int64_t kRowBlock = 256;

/// The split of a key.
inline std::int64_t split_of(const AttentionKey& key) {
  if (!key.compressed) return key.position / kWindowBlock % kWindowSplits;
  return kWindowSplits + key.position / kRowBlock % (kMaxSplits - kWindowSplits);
}

/// Partial attention of token t over each split: part [kMaxSplits, 1, heads, dim] f32 normalised, lse
/// [kMaxSplits, 1, heads] f32, -inf (and part not written) where a split has no key. The sink is left to the merge.
struct AttentionParts {
  View<float, 4> part;
  View<float, 3> lse;
};
void attention_parts_ref(const SparseAttention& a, std::int64_t t, const AttentionParts& parts);
void attention_parts_cpu(const SparseAttention& a, std::int64_t t, const AttentionParts& parts);

template <>
inline constexpr auto kCpuTwin<&attention_parts_ref> = &attention_parts_cpu;

/// sparse_attention_ref in another order: attention_parts_ref, then merge_splits_ref, which lets the sink in once.
/// Partial outputs and log-sums are rounded to f32 in between.
void sparse_attention_split_ref(const SparseAttention& a);
void sparse_attention_split_cpu(const SparseAttention& a);

template <>
inline constexpr auto kCpuTwin<&sparse_attention_split_ref> = &sparse_attention_split_cpu;

template <>
struct Sides<"attention.split_k"> {
  static constexpr auto* off = &sparse_attention_ref;
  static constexpr auto* on = &sparse_attention_split_ref;
};

}  // namespace plumb
