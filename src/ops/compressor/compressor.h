#pragma once

#include <cstdint>

#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

/// s[t, :] += bias[(first_position + t) mod rate, :], the form in which gates are stored.
/// s [tokens, halves*width] f32 · bias [rate, halves*width] f32.  Source: model specification 3.6.
struct PositionBias {
  View<float, 2> s;
  View<const float, 2> bias;
  std::int64_t first_position;
};
void position_bias_ref(const PositionBias& a);

/// What a compressor carries from pass to pass: keys and gates of the positions since the last multiple of rate (slot
/// p mod rate; unused slots k = 0, s = -inf), and for an overlapping compressor the first halves of the last closed
/// window (k = 0, s = -inf before there is one).
struct CompressorState {
  View<float, 2> open_k, open_s;          // [rate, halves*width]
  View<float, 2> previous_k, previous_s;  // [rate, width]; null when not overlapping
};

/// Pools windows of `rate` positions into rows. Window n covers positions n*rate .. n*rate + rate - 1. Its items are,
/// in this order: overlapping (halves = 2) the first halves of window n-1's positions and the second halves of its own;
/// otherwise its own positions. For each channel c, over the items i:
///
///   pooled[c] = sum of softmax_i(s_i[c]) * k_i[c]
///   row       = rope(rms_norm(pooled) at position n*rate)
///
/// k, s   [tokens, halves*width] f32, the pass's positions from first_position on; s with its position bias
/// state  what the positions before the pass left behind; only read
/// norm   [width] f32 · table [windows, rope_dim/2, 2] f64: cos and sin of each row's position, as rope takes it
/// rows   [windows, width] f32: windows first_window .. , each of which must end inside the pass
/// An absent previous window has s = -inf and so weight exactly 0. f64 (ref) or f32 (cpu); pooled and normed rows
/// are rounded to f32.
/// Source: model specification 3.6 and 4.
struct Compressor {
  View<const float, 2> k;
  View<const float, 2> s;
  CompressorState state;
  std::int64_t first_position;
  std::int64_t rate;
  View<const float, 1> norm;
  double eps;
  View<const double, 3> table;
  std::int64_t first_window;
  View<float, 2> rows;
};
void compressor_ref(const Compressor& a);
void compressor_cpu(const Compressor& a);

template <>
inline constexpr auto kCpuTwin<&compressor_ref> = &compressor_cpu;

/// A stored key and gate row.
struct CompressorItem {
  const float* k;
  const float* s;
};
/// pooled[c] for the channels [first, first + count), count <= kPoolChannels, over all items of a window.
using PoolChannels = void (*)(const CompressorItem* items, std::int64_t item_count, std::int64_t first,
                              std::int64_t count, float* pooled);
inline constexpr std::int64_t kPoolChannels = 16;
/// What all sides share: finds each window's items, pools them with `pool`, norms and rotates the rows on `backend`.
void compress_rows(const Compressor& a, PoolChannels pool, Backend backend = Backend::ref);

/// Moves `state` from first_position to first_position + tokens. k, s, rate as in Compressor.
struct CompressorCarry {
  View<const float, 2> k;
  View<const float, 2> s;
  CompressorState state;
  std::int64_t first_position;
  std::int64_t rate;
};
void compressor_carry_ref(const CompressorCarry& a);

}  // namespace plumb
