#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace plumb {

/// A dense row-major array of rank R that somebody else owns; the last index is contiguous.
///
/// Indexing is unchecked in release builds of kernels; construction checks that no extent is negative.
template <class T, int R>
class View {
 public:
  View() = default;
  View(T* data, const std::array<std::int64_t, R>& extents) : data_(data), extents_(extents) {
    for (const std::int64_t extent : extents) CHECK(extent >= 0);
  }
  /// A view of mutable data may be read through a view of const data.
  template <class U>
    requires std::is_same_v<T, const U>
  View(const View<U, R>& other) : data_(other.data()), extents_(other.extents()) {}  // NOLINT(*-explicit-*)

  T* data() const { return data_; }
  const std::array<std::int64_t, R>& extents() const { return extents_; }
  std::int64_t extent(int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t size() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents_) count *= extent;
    return count;
  }
  bool empty() const { return size() == 0; }
  std::span<T> span() const { return {data_, static_cast<std::size_t>(size())}; }

  /// The element at one index per axis.
  template <class... I>
  T& operator()(I... index) const {
    static_assert(sizeof...(I) == R);
    std::int64_t offset = 0;
    int axis = 0;
    ((offset = offset * extents_[static_cast<std::size_t>(axis++)] + static_cast<std::int64_t>(index)), ...);
    return data_[offset];
  }

  /// Pointer to the first element of row `i` of the first axis.
  T* row(std::int64_t i) const {
    std::int64_t stride = 1;
    for (int axis = 1; axis < R; ++axis) stride *= extents_[static_cast<std::size_t>(axis)];
    return data_ + i * stride;
  }

  /// Rows [begin, end) of the first axis.
  View rows(std::int64_t begin, std::int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= extents_[0]);
    auto extents = extents_;
    extents[0] = end - begin;
    return View(row(begin), extents);
  }

 private:
  T* data_ = nullptr;
  std::array<std::int64_t, R> extents_{};
};

}  // namespace plumb
