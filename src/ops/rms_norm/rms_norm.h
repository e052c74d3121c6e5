#pragma once

#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

/// out[t, c] = weight[c] * x[t, c] / sqrt(mean over c of x[t, c]^2 + eps)
///
/// x, out [rows, width] f32, may be the same memory · weight [width] f32; a null view means all ones (the per-head norm
/// of queries: rows = tokens * heads). ref: one f64 chain for the sum, one rounding at the end. cpu: f32; the sum is
/// sixteen interleaved chains (c mod 16) of fused multiply-adds, added in a fixed tree, since one chain alone would
/// wait for its own additions. Source: model specification 2.1.
struct RmsNorm {
  View<const float, 2> x;
  View<const float, 1> weight;
  double eps;
  View<float, 2> out;
};
void rms_norm_ref(const RmsNorm& a);
void rms_norm_cpu(const RmsNorm& a);

template <>
inline constexpr auto kCpuTwin<&rms_norm_ref> = &rms_norm_cpu;

/// sums[r] = sum over k of x[r, k]^2 for `rows` rows of `width` f32, `stride` apart: one f64 chain a row.
void sum_of_squares(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums);

}  // namespace plumb
