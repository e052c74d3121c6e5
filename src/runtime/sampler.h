#pragma once

#include <cstdint>
#include <span>

#include "runtime/generator.h"

namespace plumb {

/// The next token at absolute position `position`.
///
/// temperature 0: argmax, lowest id among equals. Otherwise p_i ~ exp((logit_i - max) / temperature) over the ids that
/// pass top_k, then top_p (the smallest set in descending order that reaches it), then min_p (p_i >= min_p * p_max);
/// the draw inverts the cumulative sum in that order at u(seed, position). Accumulates in f64.
std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, std::int64_t position);

/// log-softmax of raw logits for `id` and the `top_count` largest; top_count < 0 gives an empty list and logprob 0.
TokenScore score_token(std::span<const float> logits, std::int32_t id, int top_count);

}  // namespace plumb
