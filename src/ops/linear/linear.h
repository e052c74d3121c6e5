#pragma once

#include <cstdint>

#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

/// The outputs [begin, end) of an op, for a caller that spreads outputs over threads; others are not touched.
struct OutputRange {
  std::int64_t begin = 0;
  std::int64_t end = -1;  // -1: all of them
};

/// out[t, o] = sum over k of x[t, k] * weight[k, o]
///
/// x [rows, in] f32 · weight [in, out] f32, the usual matrix transposed · out [rows, out] f32. No bias. One chain per
/// output in ascending k: f64, rounded to f32 once (ref); f32 fused multiply-adds (cpu).
/// Source: model specification 2 (y = x W^T).
struct Linear {
  View<const float, 2> x;
  View<const float, 2> weight;
  View<float, 2> out;
  OutputRange outputs = {};
};
void linear_ref(const Linear& a);
void linear_cpu(const Linear& a);

template <>
inline constexpr auto kCpuTwin<&linear_ref> = &linear_cpu;

}  // namespace plumb
