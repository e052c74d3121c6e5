#pragma once

#include "ops/rope/rope.h"
#include "switches/on_side.h"

namespace plumb {

/// rope_table_ref with the angles looked up: table[t] = stored[first + t * step]. `stored` holds every position the
/// model has, made once by rope_table_ref with first 0 and step 1, so the values are equal to the bit.
/// `frequencies` is not used. Source: model specification 2.2.
void rope_table_stored_ref(const RopeTable& a);

template <>
struct Sides<"rope.table"> {
  static constexpr auto* off = &rope_table_ref;
  static constexpr auto* on = &rope_table_stored_ref;
};

}  // namespace plumb
