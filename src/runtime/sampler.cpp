#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "base/rng.h"

namespace plumb {
namespace {

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Ids by descending logit, then ascending id; only the first `count` are in order.
std::vector<std::int32_t> top_ids(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), before);
  ids.resize(count);
  return ids;
}

double uniform_at(std::uint64_t seed, std::int64_t position) {
  return static_cast<double>(mix64(mix64(seed) ^ static_cast<std::uint64_t>(position)) >> 11) * 0x1.0p-53;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, std::int64_t position) {
  CHECK(!logits.empty());
  if (sampling.temperature == 0) return argmax(logits);
  const std::size_t limit = sampling.top_k > 0 ? static_cast<std::size_t>(sampling.top_k) : logits.size();
  const std::vector<std::int32_t> ids = top_ids(logits, limit);
  const double largest = logits[static_cast<std::size_t>(ids.front())];
  std::vector<double> weight(ids.size());
  double total = 0;
  for (std::size_t i = 0; i < ids.size(); ++i)
    total += weight[i] = math::exp((logits[static_cast<std::size_t>(ids[i])] - largest) / sampling.temperature);
  double kept = 0;
  std::size_t count = 0;
  while (count < ids.size() && (count == 0 || kept < sampling.top_p * total) &&
         weight[count] >= sampling.min_p * weight[0])
    kept += weight[count++];
  double left = uniform_at(sampling.seed, position) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i)
    if ((left -= weight[i]) < 0) return ids[i];
  return ids[count - 1];
}

TokenScore score_token(std::span<const float> logits, std::int32_t id, int top_count) {
  TokenScore score;
  score.id = id;
  if (top_count < 0) return score;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += math::exp(logit - largest);
  const double normaliser = largest + math::log(sum);
  const auto logprob = [&](std::int32_t token) {
    return static_cast<float>(logits[static_cast<std::size_t>(token)] - normaliser);
  };
  score.logprob = logprob(id);
  for (const std::int32_t top : top_ids(logits, static_cast<std::size_t>(top_count)))
    score.top.emplace_back(top, logprob(top));
  return score;
}

}  // namespace plumb
