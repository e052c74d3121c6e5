#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "runtime/steps.h"

namespace plumb::faults {

/// The honest step, but no page of the sequence is shared: what a plant then does to them stays its own, and the stored
/// prefix remains as it is. Without room for the copies nothing is taken over.
void start_from_copied_prefix(const PrefixStart& start);

/// Starts a sequence at `length` with the content of these pages, as they are now and whoever owns them, and this tail.
/// Without room for it nothing is taken over.
void take_over(const PrefixStart& start, std::int64_t length, std::span<const int> pages, std::span<const float> tail);

/// Kinds of open state: tokens behind the last closed group; what the next group overlaps of it.
inline bool is_remainder(const StateKind& kind) {
  return kind.home == Home::open && (kind.name.ends_with("open_k") || kind.name.ends_with("open_s"));
}
inline bool is_overlap(const StateKind& kind) {
  return kind.home == Home::open && (kind.name.ends_with("previous_k") || kind.name.ends_with("previous_s"));
}

/// Sets the open state of the kinds that `chosen` names to what it is at the start of a sequence.
template <class Chosen>
void clear_open(const StateLayout& layout, SequenceState& state, Chosen&& chosen) {
  const std::vector<float> fresh = fresh_open(layout);
  for (const StateKind& kind : layout.kinds())
    if (kind.home == Home::open && chosen(kind))
      std::copy_n(fresh.begin() + kind.offset, kind.rows * kind.width, state.open.begin() + kind.offset);
}

}  // namespace plumb::faults
