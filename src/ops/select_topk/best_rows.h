#pragma once

#include <cstdint>
#include <vector>

namespace plumb {

/// For backend cpu: the best k of rows that are offered in ascending order, in the order of selection of SelectTopk.
/// Rows that reach the k-th best so far wait in a small buffer; when it is full, only the best k of it stay.
class BestRows {
 public:
  explicit BestRows(std::int64_t k);

  /// Offers rows first .. first + count - 1, count <= kMaxOffer; `first` is above every row offered before.
  void offer(const float* scores, std::int32_t first, std::int64_t count);
  /// Writes the rows kept, ascending, behind as many -1 as are needed to fill k entries.
  void write(std::int32_t* selected);

  static constexpr std::int64_t kMaxOffer = 64;

 private:
  void keep_best();

  std::int64_t k_;
  std::int64_t size_ = 0;
  bool full_ = false;                        // k rows are kept: a row has to beat `least_`
  std::int32_t least_ = 0;                   // image of the k-th best
  std::vector<std::int32_t> images_, rows_;  // 2k + kMaxOffer, ascending in row
};

}  // namespace plumb
