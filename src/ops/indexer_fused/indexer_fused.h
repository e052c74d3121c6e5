#pragma once

#include "ops/indexer/indexer.h"
#include "switches/on_side.h"

namespace plumb {

/// indexer_ref in one pass over the keys: every score goes straight to the best k of its query and is not stored.
/// Replaces indexer_scores and select_topk; same chains, same order of selection, so equal to the bit.
/// `scores` and `seen` are not used.
void indexer_fused_ref(const Indexer& a);
void indexer_fused_cpu(const Indexer& a);

template <>
inline constexpr auto kCpuTwin<&indexer_fused_ref> = &indexer_fused_cpu;

template <>
struct Sides<"indexer.fused"> {
  static constexpr auto* off = &indexer_ref;
  static constexpr auto* on = &indexer_fused_ref;
};

}  // namespace plumb
