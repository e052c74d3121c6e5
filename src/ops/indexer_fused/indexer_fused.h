#pragma once

#include "ops/indexer/indexer.h"
#include "switches/on_side.h"

namespace plumb {

/// indexer_ref in one pass over the keys: every score goes straight to the best k of its query and is not stored.
/// Replaces indexer_scores and select_topk; same chains, same order of selection, so equal to the bit.
/// `scores` and `seen` are not used.
void indexer_fused_ref(const Indexer& a);

template <>
struct Sides<"indexer.fused"> {
  static constexpr auto* off = &indexer_ref;
  static constexpr auto* on = &indexer_fused_ref;
};

}  // namespace plumb
