#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/view.h"
#include "switches/on_side.h"

namespace plumb {

/// What rotary frequencies are made of. dim: rotated channels. factor 1: no YaRN.
struct RopeFrequencies {
  std::int64_t dim;
  double theta;
  double factor;
  double original_max_positions;
  double beta_fast;
  double beta_slow;
};

/// f_i = g_i (1 - ramp_i) + g_i / factor * ramp_i, i = 0 .. dim/2 - 1, in f64, with
///   g_i    = theta^(-2i/dim)
///   ramp_i = clamp((i - low) / (high - low), 0, 1)
///   low    = max(floor(c(beta_fast)), 0), high = min(ceil(c(beta_slow)), dim - 1); equal: high = low + 0.001
///   c(b)   = dim ln(original_max_positions / (2 pi b)) / (2 ln theta)
/// Source: model specification 2.2.
std::vector<double> rope_frequencies(const RopeFrequencies& a);

/// table[t] = {cos, sin} of (first + t * step) * f_i, f64: [positions, dim/2, 2]. `stored`, for the on side of
/// rope.table, is the same of all positions from 0 on; the reference does not read it.
struct RopeTable {
  std::int64_t first;
  std::int64_t step;
  std::span<const double> frequencies;
  View<double, 3> table;
  View<const double, 3> stored = {};
};
void rope_table_ref(const RopeTable& a);

/// Rotates the last 2 * table.extent(1) channels of every head, in place, pairs interleaved (0,1), (2,3), ...:
///   x'[2i] = x[2i] cos - x[2i+1] sin,  x'[2i+1] = x[2i] sin + x[2i+1] cos;  inverse: sin with the other sign.
///
/// x [rows, heads, dim] f32 · table [rows, rope_dim/2, 2] f64. ref: computed in f64, rounded once. cpu: the table is
/// rounded to f32, then fma(x, cos, other * -+sin).
/// Source: model specification 2.2.
struct Rope {
  View<float, 3> x;
  View<const double, 3> table;
  bool inverse;
};
void rope_ref(const Rope& a);
void rope_cpu(const Rope& a);

template <>
inline constexpr auto kCpuTwin<&rope_ref> = &rope_cpu;

/// The rotation back of attention's outputs, under no switch.
template <>
struct Step<"attention.derotate"> {
  static constexpr auto* run = &rope_ref;
};

/// Pairs a rotation of backend cpu takes at most.
inline constexpr std::int64_t kMaxRopePairs = 256;

}  // namespace plumb
