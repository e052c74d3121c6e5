#pragma once

#include "base/view.h"

namespace plumb {

/// out[t, c] = weight[c] * x[t, c] / sqrt(mean over c of x[t, c]^2 + eps)
///
/// x, out [rows, width] f32, may be the same memory · weight [width] f32; a null view means all ones (the per-head norm
/// of queries: rows = tokens * heads). One f64 chain for the sum, one rounding at the end.
/// Source: model specification 2.1.
struct RmsNorm {
  View<const float, 2> x;
  View<const float, 1> weight;
  double eps;
  View<float, 2> out;
};
void rms_norm_ref(const RmsNorm& a);

/// sums[r] = sum over k of x[r, k]^2 for `rows` rows of `width` f32, `stride` apart: one f64 chain a row.
void sum_of_squares(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums);

}  // namespace plumb
