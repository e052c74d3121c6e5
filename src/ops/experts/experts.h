#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/view.h"

namespace plumb {

/// One gated MLP, weights transposed: gate, up [d, inner] f32, down [inner, d] f32.
struct GatedMlp {
  View<const float, 2> gate;
  View<const float, 2> up;
  View<const float, 2> down;
};

/// Working memory of the experts op, reused from call to call.
struct ExpertsScratch {
  std::vector<std::int64_t> rows;  // the rows an expert works on
  std::vector<float> weights;      // and their weights for it
  std::vector<float> x;            // gathered inputs
  std::vector<float> gate, up, down;
  std::vector<double> sums;
};

/// out[t] = shared(x[t]) + sum over the chosen experts e of weight[t, e] * mlp_e(x[t])
///   mlp(x) = down (silu(min(gate x, limit)) * clamp(up x, -limit, limit))
///
/// x, out  [rows, d] f32 · experts [rows, k] i32 · weights [rows, k] f32
/// The routed sum is an f64 chain in ascending expert id, the shared expert is added last (weight 1), rounded once. The
/// outputs of each linear layer and the gated product are rounded to f32. The gate has no lower clamp.
/// Source: model specification 3.11.
struct Experts {
  View<const float, 2> x;
  View<const std::int32_t, 2> experts;
  View<const float, 2> weights;
  std::span<const GatedMlp> routed;
  GatedMlp shared;
  double limit;
  View<float, 2> out;
  ExpertsScratch* scratch;
};
void experts_ref(const Experts& a);

/// gate[i] = silu(min(gate[i], limit)) * clamp(up[i], -limit, limit), f64, rounded to f32.
void gated_product(std::span<float> gate, std::span<const float> up, double limit);

}  // namespace plumb
