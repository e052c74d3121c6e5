#include "runtime/top_ids.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace plumb {
namespace {

// The order of ranks: a total one, so that a selection has exactly one result.
auto ranks_before(std::span<const float> logits) {
  return [logits](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
}

}  // namespace

std::vector<std::int32_t> top_ids_sorted(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), ranks_before(logits));
  ids.resize(std::min(count, ids.size()));
  return ids;
}

std::vector<std::int32_t> top_ids_selected(std::span<const float> logits, std::size_t count) {
  count = std::min(count, logits.size());
  std::vector<std::int32_t> ids;
  if (count == 0) return ids;
  const auto before = ranks_before(logits);
  const auto cut = static_cast<std::ptrdiff_t>(count);
  ids.reserve(2 * count);
  float threshold = -std::numeric_limits<float>::infinity();
  bool full = false;  // `count` candidates reach the threshold
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (full && logits[i] <= threshold) continue;
    ids.push_back(static_cast<std::int32_t>(i));
    if (ids.size() < 2 * count && (full || ids.size() < count)) continue;
    // The first time this only finds the threshold, afterwards it also drops what fell below.
    std::nth_element(ids.begin(), ids.begin() + (cut - 1), ids.end(), before);
    ids.resize(count);
    threshold = logits[static_cast<std::size_t>(ids.back())];
    full = true;
  }
  if (ids.size() > count) {
    std::nth_element(ids.begin(), ids.begin() + (cut - 1), ids.end(), before);
    ids.resize(count);
  }
  std::sort(ids.begin(), ids.end(), before);
  return ids;
}

}  // namespace plumb
