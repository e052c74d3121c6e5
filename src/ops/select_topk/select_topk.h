#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

/// For each query the k visible rows with the highest scores; among equal scores the lower row wins; NaN ranks with
/// -inf. Row n is visible to position p iff n < (p + 1) div rate.
///
/// scores   [tokens, rows] f32; entries of rows that are not visible are never read
/// selected [tokens, k] i32, ascending; -1, in front, where fewer than k rows are visible
/// Source: model specification 3.8.
struct SelectTopk {
  View<const float, 2> scores;
  std::int64_t first_position;
  std::int64_t rate;
  View<std::int32_t, 2> selected;
};
void select_topk_ref(const SelectTopk& a);
void select_topk_cpu(const SelectTopk& a);

template <>
inline constexpr auto kCpuTwin<&select_topk_ref> = &select_topk_cpu;

/// A row that may be selected.
struct Candidate {
  float score;
  std::int32_t row;
};

/// The order of selection, total: higher score first, then the lower row.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.row < b.row);
}

/// Keeps the best k of the rows offered to it, in any order of offering.
class TopK {
 public:
  explicit TopK(std::int64_t k) : k_(static_cast<std::size_t>(k)) { heap_.reserve(k_); }

  void clear() { heap_.clear(); }
  void offer(float score, std::int32_t row) {
    const Candidate candidate{std::isnan(score) ? -std::numeric_limits<float>::infinity() : score, row};
    if (heap_.size() == k_) {
      if (k_ == 0 || !ranks_before(candidate, heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), ranks_before);
      heap_.back() = candidate;
    } else {
      heap_.push_back(candidate);
    }
    std::push_heap(heap_.begin(), heap_.end(), ranks_before);
  }
  /// Writes the rows kept, ascending, behind as many -1 as are needed to fill k entries.
  void write(std::int32_t* selected) const {
    const std::size_t empty = k_ - heap_.size();
    std::fill_n(selected, empty, -1);
    for (std::size_t i = 0; i < heap_.size(); ++i) selected[empty + i] = heap_[i].row;
    std::sort(selected + empty, selected + k_);
  }

 private:
  std::size_t k_;
  std::vector<Candidate> heap_;  // the worst of those kept is in front
};

}  // namespace plumb
