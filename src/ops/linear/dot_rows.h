#pragma once

#include <cstdint>

namespace plumb {

/// The one inner loop of everything that multiplies matrices here (linear layers, attention, index scores):
///
///   out[r, o] = sum over k of x[r, k] * w[k, o]
///
/// x    [rows, in]      f32, rows `x_stride` apart
/// w    [in, out]       f32, rows `w_stride` apart: outputs are contiguous
/// out  [rows, out]     f32 or f64, rows `out_stride` apart
///
/// One f64 accumulation chain per output element, in ascending k. A product of two f32 is exact in f64, so a fused
/// multiply-add gives the same bits as a multiplication and an addition; tiles over rows and outputs only decide which
/// chains run side by side. So the result depends neither on the instruction set nor on `rows`.
struct DotRows {
  const float* x;
  std::int64_t x_stride;
  const float* w;
  std::int64_t w_stride;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};
void dot_rows(const DotRows& a, float* out, std::int64_t out_stride);
void dot_rows(const DotRows& a, double* out, std::int64_t out_stride);

}  // namespace plumb
