#pragma once

#include "base/view.h"
#include "ops/hyper_connection/hyper_connection.h"

namespace plumb {

/// out = sum over j of (sigmoid(m[j] * scale + base[j]) + hc_eps) * streams[j], m = (v fn) / sqrt(mean(v^2) + eps), v
/// the streams flattened. Neither Sinkhorn nor a factor 2 here; the final norm and the projection to logits follow.
///
/// streams [rows, n, d] f32 · fn [n*d, n] f32 · base [n] f32 · scale [1] f32 · out [rows, d] f32. f64, rounded once
/// (ref); f32, sums as in HcPre (cpu).
/// Source: model specification 3.12.
struct HcHead {
  View<const float, 3> streams;
  View<const float, 2> fn;
  View<const float, 1> base;
  View<const float, 1> scale;
  double eps;
  double hc_eps;
  View<float, 2> out;
};
void hc_head_ref(const HcHead& a);
void hc_head_cpu(const HcHead& a);

template <>
inline constexpr auto kCpuTwin<&hc_head_ref> = &hc_head_cpu;

}  // namespace plumb
