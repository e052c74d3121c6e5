#pragma once

#include "base/view.h"

namespace plumb {

/// out[t, o] = sum over k of x[t, k] * weight[k, o]
///
/// x [rows, in] f32 · weight [in, out] f32, the usual matrix transposed · out [rows, out] f32. No bias. One f64 chain
/// per output in ascending k, rounded to f32 once.
/// Source: model specification 2 (y = x W^T).
struct Linear {
  View<const float, 2> x;
  View<const float, 2> weight;
  View<float, 2> out;
};
void linear_ref(const Linear& a);

}  // namespace plumb
