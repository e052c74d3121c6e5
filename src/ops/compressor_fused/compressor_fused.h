#pragma once

#include "ops/compressor/compressor.h"
#include "switches/on_side.h"

namespace plumb {

/// compressor_ref without its intermediate tensors: for each channel the largest gate, then one pass over the items
/// that adds each softmax weight to the total and its product to the sum and forgets it. The same f64 chains in the
/// same order, so equal to the bit.
void compressor_fused_ref(const Compressor& a);
/// compressor_cpu, which pools in one pass anyway.
void compressor_fused_cpu(const Compressor& a);

template <>
inline constexpr auto kCpuTwin<&compressor_fused_ref> = &compressor_fused_cpu;

template <>
struct Sides<"compressor.fused"> {
  static constexpr auto* off = &compressor_ref;
  static constexpr auto* on = &compressor_fused_ref;
};

}  // namespace plumb
