#include "engine/local_sequence.h"

#include <algorithm>
#include <limits>

namespace plumb {

LocalSequence::LocalSequence(const StateLayout& layout) : layout_(&layout) { state_.open = fresh_open(layout); }

SequenceState& LocalSequence::reserve(std::int64_t tokens) {
  const auto add = [&](std::vector<float*>& pages, std::int64_t floats) {
    const auto count = static_cast<std::size_t>(floats);
    owned_.push_back(std::make_unique<float[]>(count));
    std::fill_n(owned_.back().get(), count, std::numeric_limits<float>::quiet_NaN());
    pages.push_back(owned_.back().get());
  };
  while (static_cast<std::int64_t>(state_.pages.size()) * kPageTokens < tokens) {
    add(state_.pages, layout_->page_floats());
    add(state_.window_pages, layout_->window_page_floats());
  }
  return state_;
}

}  // namespace plumb
