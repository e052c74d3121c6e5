#pragma once

#include "ops/linear/dot_rows.h"

namespace plumb {

/// dot_rows of backend cpu:
///
///   chain = 0;  for k ascending: chain = fma(x[r, k], w[k, o], chain);  out[r, o] = chain
///
/// One f32 chain of fused multiply-adds per output element, whatever the rows, outputs and instruction set around it:
/// registers hold neighbouring outputs, tiles over rows only decide which chains run side by side. Where the processor
/// has no fused multiply-add, std::fma computes the same bits.
///
/// row_index [rows]: x[r, :] is then row row_index[r] of `x`; null: row r.
void dot_rows_cpu(const DotRows& a, float* out, std::int64_t out_stride, const std::int64_t* row_index = nullptr);

}  // namespace plumb
