#pragma once

#include "ops/experts/experts.h"
#include "switches/on_side.h"

namespace plumb {

/// experts_ref with the rows of the whole batch gathered by expert, so that a pass reads the weights of each expert
/// once; the executor's threads share experts (ref) or experts and columns (cpu). A row's chains are the same whatever
/// rows are beside it, and its sum still runs in ascending expert id: equal to the bit.
void experts_grouped_ref(const Experts& a);
void experts_grouped_cpu(const Experts& a);

template <>
inline constexpr auto kCpuTwin<&experts_grouped_ref> = &experts_grouped_cpu;

template <>
struct Sides<"moe.grouped"> {
  static constexpr auto* off = &experts_ref;
  static constexpr auto* on = &experts_grouped_ref;
};

}  // namespace plumb
