#pragma once

#include <cstdint>
#include <span>

#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

/// Experts of scored layers: the k with the largest sqrt(softplus(logit)) + bias; among equals the lower id. In
/// descending order of that sum.
/// logits [tokens, experts] f32 · bias [experts] f32, for the selection only · experts [tokens, k] i32.
/// Source: model specification 3.11.
struct SelectExperts {
  View<const float, 2> logits;
  View<const float, 1> bias;
  View<std::int32_t, 2> experts;
};
void select_experts_ref(const SelectExperts& a);
/// In f64 as well, since a choice must not depend on the backend's rounding: equal to the bit.
void select_experts_cpu(const SelectExperts& a);

template <>
inline constexpr auto kCpuTwin<&select_experts_ref> = &select_experts_cpu;

/// Experts of hash layers: the row of a table for the token's id, in its order.
/// tokens [tokens] i32 · table [vocab, k] i64 · experts [tokens, k] i32.  Source: model specification 3.11.
struct HashExperts {
  std::span<const std::int32_t> tokens;
  View<const std::int64_t, 2> table;
  View<std::int32_t, 2> experts;
};
void hash_experts_ref(const HashExperts& a);

/// weights[t, i] = score_i / (sum over the chosen of score) * scaling, score_i = sqrt(softplus(logits[t, experts[t,
/// i]])). softplus is the identity above 20. f64, rounded once. For both kinds of layers.  Source: model
/// specification 3.11.
struct ExpertWeights {
  View<const float, 2> logits;
  View<const std::int32_t, 2> experts;
  double scaling;
  View<float, 2> weights;
};
void expert_weights_ref(const ExpertWeights& a);

}  // namespace plumb
