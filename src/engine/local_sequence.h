#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/state.h"

namespace plumb {

/// A sequence that owns its pages and frees none before its end: for golden traces and tests, where there is no pool.
class LocalSequence {
 public:
  explicit LocalSequence(const StateLayout& layout);

  /// The state, with pages for every position below `tokens`. New pages hold NaN: nothing may be read before it is
  /// written.
  SequenceState& reserve(std::int64_t tokens);
  SequenceState& state() { return state_; }

 private:
  const StateLayout* layout_;
  SequenceState state_;
  std::vector<std::unique_ptr<float[]>> owned_;
};

}  // namespace plumb
