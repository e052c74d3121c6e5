#include "runtime/sampler.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "base/rng.h"
#include "runtime/top_ids.h"

namespace plumb {
namespace {

// Ranks that are looked up at first; a draw rarely goes deeper. Each further look-up asks for kMoreRanks times as many.
constexpr std::size_t kFirstRanks = 256;
constexpr std::size_t kMoreRanks = 8;

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double uniform_at(std::uint64_t seed, std::int64_t position) {
  return static_cast<double>(mix64(mix64(seed) ^ static_cast<std::uint64_t>(position)) >> 11) * 0x1.0p-53;
}

// The candidates of a draw in rank order, with their weights. Ranks are fetched when they are needed.
class Candidates {
 public:
  Candidates(std::span<const float> logits, const Sampling& sampling, const Settings& settings)
      : logits_(logits),
        settings_(settings),
        temperature_(sampling.temperature),
        largest_(*std::max_element(logits.begin(), logits.end())),
        count_(logits.size()) {
    if (sampling.top_k > 0) count_ = std::min(count_, static_cast<std::size_t>(sampling.top_k));
  }

  std::size_t count() const { return count_; }
  std::int32_t id(std::size_t rank) {
    if (rank >= ids_.size())
      ids_ = chosen_side<"sampler.fast_topk">(settings_, logits_,
                                              std::min(count_, std::max(kFirstRanks, kMoreRanks * ids_.size())));
    return ids_[rank];
  }
  double weight(std::size_t rank) { return weight_of(logits_[static_cast<std::size_t>(id(rank))]); }
  double sum() {
    double sum = 0;
    if (count_ == logits_.size())
      for (const float logit : logits_) sum += weight_of(logit);
    else
      for (std::size_t rank = 0; rank < count_; ++rank) sum += weight(rank);
    return sum;
  }

 private:
  double weight_of(float logit) const { return math::exp((logit - largest_) / temperature_); }

  std::span<const float> logits_;
  const Settings& settings_;
  double temperature_;
  double largest_;
  std::size_t count_;
  std::vector<std::int32_t> ids_;  // of the first ranks
};

}  // namespace

bool adjusts_logits(const Sampling& sampling) {
  return !sampling.logit_bias.empty() || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0 ||
         sampling.repetition_penalty != 1;
}

void adjust_logits(std::span<float> logits, const Sampling& sampling, const SeenTokens& seen) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const auto store = [&](std::int32_t id, double value) {
    logits[static_cast<std::size_t>(id)] = static_cast<float>(std::clamp(value, -kLargest, kLargest));
  };
  const auto biased = [&](std::int32_t id) {
    const auto bias = sampling.logit_bias.find(id);
    return logits[static_cast<std::size_t>(id)] +
           (bias == sampling.logit_bias.end() ? 0.0 : static_cast<double>(bias->second));
  };
  const auto& times_generated = seen.times_generated();
  for (const auto& [id, bias] : sampling.logit_bias)
    if (!times_generated.contains(id)) store(id, biased(id));
  for (const auto& [id, times] : times_generated) {
    double x = biased(id);
    x = x > 0 ? x / sampling.repetition_penalty : x * sampling.repetition_penalty;
    x -= sampling.frequency_penalty * static_cast<double>(times);
    x -= times > 0 ? sampling.presence_penalty : 0.0;
    store(id, x);
  }
}

std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, std::int64_t position,
                          const Settings& settings) {
  CHECK(!logits.empty());
  if (sampling.temperature == 0) return argmax(logits);
  Candidates candidates(logits, sampling, settings);
  double kept = candidates.sum();
  std::size_t count = candidates.count();
  if (sampling.top_p < 1 || sampling.min_p > 0) {
    const double enough = sampling.top_p * kept;
    const double least = sampling.min_p * candidates.weight(0);
    kept = 0;
    for (count = 0; count < candidates.count() && (count == 0 || kept < enough); ++count) {
      const double weight = candidates.weight(count);
      if (weight < least) break;
      kept += weight;
    }
  }
  // The sum in another order may differ from `kept` by rounding; what is left over goes to the last possible id.
  double left = uniform_at(sampling.seed, position) * kept;
  std::int32_t drawn = candidates.id(0);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const double weight = candidates.weight(rank);
    if (weight == 0) break;
    drawn = candidates.id(rank);
    if ((left -= weight) < 0) break;
  }
  return drawn;
}

TokenScore score_token(std::span<const float> logits, std::int32_t id, int top_count, const Settings& settings) {
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
  if (top_count == 0) return score;
  for (const std::int32_t top : chosen_side<"sampler.fast_topk">(settings, logits, static_cast<std::size_t>(top_count)))
    score.top.emplace_back(top, logprob(top));
  return score;
}

}  // namespace plumb
