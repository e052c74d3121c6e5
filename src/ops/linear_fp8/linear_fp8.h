#pragma once

#include "ops/linear/linear.h"
#include "ops/linear_fp8/fp8_matrix.h"
#include "switches/on_side.h"

namespace plumb {

/// A linear layer whose weights the launch may have stored in FP8.
struct LinearFp8 {
  Linear plain;                       // the ports; plain.weight is for the off side
  const Fp8Matrix* weight = nullptr;  // for the on side
};
/// linear_ref on plain.weight.
void linear_plain_ref(const LinearFp8& a);
void linear_plain_cpu(const LinearFp8& a);
/// linear_ref on round_activations_fp8 of x and the dequantised weight. Both hold few bits and power-of-two scales, so
/// these are the sums of the release's FP8 GEMM without the rounding between its blocks of 128.
/// Source: model specification 2.3 (act128), 5.4.
void linear_fp8_ref(const LinearFp8& a);
void linear_fp8_cpu(const LinearFp8& a);

template <>
inline constexpr auto kCpuTwin<&linear_plain_ref> = &linear_plain_cpu;
template <>
inline constexpr auto kCpuTwin<&linear_fp8_ref> = &linear_fp8_cpu;

template <>
struct Sides<"linear.fp8"> {
  static constexpr auto* off = &linear_plain_ref;
  static constexpr auto* on = &linear_fp8_ref;
};

}  // namespace plumb
