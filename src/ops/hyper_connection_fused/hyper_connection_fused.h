#pragma once

#include "ops/hyper_connection/hyper_connection.h"
#include "switches/on_side.h"

namespace plumb {

/// One half of a hyper-connection site: the pointer that is set says which.
struct HcStep {
  const HcPre* pre = nullptr;
  const HcPost* post = nullptr;
};
/// hc_pre_ref or hc_post_ref: each step over all rows, intermediates stored.
void hc_separate_ref(const HcStep& a);
void hc_separate_cpu(const HcStep& a);
/// The same in one pass over the rows: norm, mixing product, Sinkhorn and collapse of a few rows while they are in the
/// cache; post with the sums of a few channels in registers. Same chains: equal to the bit.
void hc_fused_ref(const HcStep& a);
void hc_fused_cpu(const HcStep& a);

template <>
inline constexpr auto kCpuTwin<&hc_separate_ref> = &hc_separate_cpu;
template <>
inline constexpr auto kCpuTwin<&hc_fused_ref> = &hc_fused_cpu;

template <>
struct Sides<"mhc.fused"> {
  static constexpr auto* off = &hc_separate_ref;
  static constexpr auto* on = &hc_fused_ref;
};

/// hc_mix on bf16 inputs: streams and fn rounded to bf16 (fn_bf16 holds it so), products exact, accumulated in f32 as
/// mix_streams_cpu does, on every backend. Source: model specification 6 (hc mix GEMM).
void hc_mix_bf16(const HcMix& a);

template <>
struct Sides<"mhc.bf16_mix"> {
  static constexpr auto* off = &hc_mix_ref;
  static constexpr auto* on = &hc_mix_bf16;
};

}  // namespace plumb
