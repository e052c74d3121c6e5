#pragma once

#include "ops/linear/linear.h"

namespace plumb {

/// out[t, g, o] = sum over k of x[t, g, k] * weight[g, k, o]: a linear layer for each group of heads.
///
/// x [rows, groups, in] f32 · weight [groups, in, out] f32 · out [rows, groups, out] f32. Chains as in Linear;
/// `outputs` counts the groups * out outputs of a row. Source: model specification 3.10 (low_g = o_group_g wo_a[g]^T).
struct GroupedLinear {
  View<const float, 3> x;
  View<const float, 3> weight;
  View<float, 3> out;
  OutputRange outputs = {};
};
void grouped_linear_ref(const GroupedLinear& a);
void grouped_linear_cpu(const GroupedLinear& a);

template <>
inline constexpr auto kCpuTwin<&grouped_linear_ref> = &grouped_linear_cpu;

}  // namespace plumb
