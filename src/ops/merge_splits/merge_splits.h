#pragma once

#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

/// Splits a merge takes at most.
inline constexpr std::int64_t kMaxSplits = 32;

/// Merges split attention partials into one output row per token and head.
///
///   L          = logsumexp over s of lse[s,t,h], and over sink[h]
///   out[t,h,:] = sum over s of exp(lse[s,t,h] - L) * part[s,t,h,:]
///
/// part  [splits, tokens, heads, dim]  f32   each split's normalised output
/// lse   [splits, tokens, heads]       f32   nats; -inf means the split saw no key
/// sink  [heads]                       f32   one more term of L, without a value; a null view means none
/// out   [tokens, heads, dim]          f32   zero where every split is empty
/// Accumulates in f64 (ref) or f32 (cpu) in ascending s, the sink first. Never reads `part` of an empty split. At most
/// kMaxSplits splits. Source: model specification 3.9 (the sink); the merge is the usual log-sum-exp rule.
struct MergeSplits {
  View<const float, 4> part;
  View<const float, 3> lse;
  View<const float, 1> sink;
  View<float, 3> out;
};
void merge_splits_ref(const MergeSplits& a);
void merge_splits_cpu(const MergeSplits& a);

template <>
inline constexpr auto kCpuTwin<&merge_splits_ref> = &merge_splits_cpu;

}  // namespace plumb
