#pragma once

#include "base/view.h"
#include "switches/on_side.h"

namespace plumb {

/// Prepares queries for attention and returns what dot products with them are still to be multiplied by, so that
/// scores are q . key * dim^-0.5.
///
/// q [tokens, heads, dim] f32, may be changed in place.  Source: model specification 3.9.
struct QueryScale {
  View<float, 3> q;
};
/// Leaves q as it is and returns dim^-0.5.
double query_scale_ref(const QueryScale& a);
/// q = bf16(q * dim^-0.5), the product rounded to f32 first; returns 1. What a kernel does whose scores come from bf16
/// tensor cores.
double query_scale_bf16(const QueryScale& a);

template <>
struct Sides<"attention.q_bf16"> {
  static constexpr auto* off = &query_scale_ref;
  static constexpr auto* on = &query_scale_bf16;
};

}  // namespace plumb
