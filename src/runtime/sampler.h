#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "runtime/generator.h"
#include "switches/switches.h"

namespace plumb {

/// Which tokens a sequence holds, as the penalties count them. A function of its tokens alone.
class SeenTokens {
 public:
  explicit SeenTokens(std::span<const std::int32_t> prompt) {
    for (const std::int32_t id : prompt) times_generated_.try_emplace(id, 0);
  }
  void add_generated(std::int32_t id) { ++times_generated_[id]; }
  /// Every id of the prompt and of what was generated, with how often it was generated.
  const std::unordered_map<std::int32_t, std::int64_t>& times_generated() const { return times_generated_; }

 private:
  std::unordered_map<std::int32_t, std::int64_t> times_generated_;
};

/// True when `adjust_logits` would change something.
bool adjusts_logits(const Sampling& sampling);

/// The logits that the draw sees, in this order (vLLM's):
///
///   x_i += bias_i
///   x_i  = x_i > 0 ? x_i / repetition : x_i * repetition      for ids of the prompt and of what was generated
///   x_i -= frequency * n_i + presence * (n_i > 0)             n_i: how often i was generated
///
/// Computed in f64 and rounded to f32 once, within the finite range. `logits` [vocab]; ids lie in it.
void adjust_logits(std::span<float> logits, const Sampling& sampling, const SeenTokens& seen);

/// The next token at absolute position `position`.
///
/// temperature 0: argmax, lowest id among equals. Otherwise w_i = exp((logit_i - max) / temperature) over the ids that
/// pass top_k, then top_p (the smallest set in rank order that reaches top_p of their sum), then min_p (w_i >= min_p *
/// w_max); the draw inverts the cumulative sum in rank order at u(seed, position). Rank order: larger logit, then lower
/// id. Accumulates in f64: the sum over the whole vocabulary in ascending id, every other one in rank order.
std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, std::int64_t position,
                          const Settings& settings);

/// log-softmax of raw logits for `id` and the `top_count` largest; top_count < 0 gives an empty list and logprob 0.
TokenScore score_token(std::span<const float> logits, std::int32_t id, int top_count, const Settings& settings);

}  // namespace plumb
