#pragma once

#include "base/view.h"

namespace plumb {

/// out[t, g, o] = sum over k of x[t, g, k] * weight[g, k, o]: a linear layer for each group of heads.
///
/// x [rows, groups, in] f32 · weight [groups, in, out] f32 · out [rows, groups, out] f32. Chains as in Linear.
/// Source: model specification 3.10 (low_g = o_group_g wo_a[g]^T).
struct GroupedLinear {
  View<const float, 3> x;
  View<const float, 3> weight;
  View<float, 3> out;
};
void grouped_linear_ref(const GroupedLinear& a);

}  // namespace plumb
