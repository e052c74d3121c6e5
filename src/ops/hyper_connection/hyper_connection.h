#pragma once

#include <cstdint>

#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

/// Streams a model may have; the code keeps that many f64 of each kind on the stack.
inline constexpr std::int64_t kMaxStreams = 8;

/// streams[t, j, :] = x[t, :] for every stream j.  x [rows, d] f32 · streams [rows, n, d] f32.
/// Source: model specification 3.1.
struct ExpandStreams {
  View<const float, 2> x;
  View<float, 3> streams;
};
void expand_streams_ref(const ExpandStreams& a);

/// mix[t, :] = v fn, v the streams of a token flattened stream-major: the mixing product, before the division by the
/// root mean square.
///
/// streams [rows, n, d] f32 · fn [n*d, mixes] f32 · mix [rows, mixes] f64
/// fn_bf16 [n*d, mixes] f32: fn rounded to bf16, for the on side of mhc.bf16_mix; the reference does not read it
/// ref: one f64 chain in ascending k; cpu: mix_streams_cpu.  Source: model specification 3.3, step 2.
struct HcMix {
  View<const float, 3> streams;
  View<const float, 2> fn;
  View<const float, 2> fn_bf16;
  View<double, 2> mix;
};
void hc_mix_ref(const HcMix& a);
void hc_mix_cpu(const HcMix& a);

template <>
inline constexpr auto kCpuTwin<&hc_mix_ref> = &hc_mix_cpu;

/// Mixes the residual streams into one input and computes how its output is fed back (manifold-constrained
/// hyper-connections). With v = the streams of a token, flattened stream-major:
///
///   m         = (v fn) / sqrt(mean(v^2) + eps)
///   pre[j]    = sigmoid(m[j] scale[0] + base[j]) + hc_eps
///   post[j]   = 2 sigmoid(m[n+j] scale[1] + base[n+j])
///   c[j][k]   = m[2n+nj+k] scale[2] + base[2n+nj+k], then: softmax over k, plus hc_eps; each column divided by (its
///   sum
///               + hc_eps); iters - 1 times: each row divided by (its sum + hc_eps), then each column
///   collapsed = sum over j of pre[j] * streams[j]
///
/// streams [rows, n, d] f32 · fn [n*d, n*(2+n)] f32 · base [n*(2+n)] f32 · scale [3] f32
/// post [rows, n] f32 · comb [rows, n, n] f32 (comb[j][k]) · collapsed [rows, d] f32. Everything between
/// in f64 (ref) or f32 (cpu, where v fn is one chain a stream, streams added in order, and the sum of squares is that
/// of RmsNorm). `product` computes v fn; null: hc_mix on the op's backend. Each step runs over all rows and stores what
/// the next one needs. Source: model specification 3.3, steps 1 to 6.
struct HcPre {
  View<const float, 3> streams;
  View<const float, 2> fn;
  View<const float, 1> base;
  View<const float, 1> scale;
  double eps;
  double hc_eps;
  std::int64_t iters;
  View<float, 2> post;
  View<float, 3> comb;
  View<float, 2> collapsed;
  View<const float, 2> fn_bf16 = {};
  void (*product)(const HcMix&) = nullptr;
};
void hc_pre_ref(const HcPre& a);
void hc_pre_cpu(const HcPre& a);

template <>
inline constexpr auto kCpuTwin<&hc_pre_ref> = &hc_pre_cpu;

/// streams'[t, k, :] = post[t, k] * y[t, :] + sum over j of comb[t, j, k] * streams[t, j, :], in place. The sum runs
/// over the first index of comb. Shapes as in HcPre; y [rows, d] f32. f64, rounded once (ref); f32 chain, y first
/// (cpu). post * y is stored for all rows, then the mix is added. Source: model specification 3.3, step 7.
struct HcPost {
  View<const float, 2> y;
  View<const float, 2> post;
  View<const float, 3> comb;
  View<float, 3> streams;
};
void hc_post_ref(const HcPost& a);
void hc_post_cpu(const HcPost& a);

template <>
inline constexpr auto kCpuTwin<&hc_post_ref> = &hc_post_cpu;

/// mix[t, o] = sum over j, k of streams[t, j, k] * fn[j*d + k, o], as backend cpu has it: one f32 chain a stream, the
/// streams added in order. streams [rows, n, d] · fn [n*d, mixes] · mix rows `mixes` apart; at most kMixRows rows.
inline constexpr std::int64_t kMixRows = 16;
inline constexpr std::int64_t kMaxMixes = kMaxStreams * (2 + kMaxStreams);
void mix_streams_cpu(const View<const float, 3>& streams, const View<const float, 2>& fn, float* mix);

}  // namespace plumb
