#pragma once

#include <cstdint>
#include <vector>

#include "base/view.h"
#include "ops/paged_rows.h"
#include "ops/stored_rows/stored_rows.h"
#include "switches/backend.h"

namespace plumb {

/// Working memory of the attention ops: grown to what the largest query needs, then reused.
struct AttentionScratch {
  std::vector<float> query;        // [dim][heads padded to 8]
  std::vector<float> keys;         // [keys][dim]
  std::vector<double> scores;      // [keys][heads padded to 8]
  std::vector<float> weights;      // [heads][keys]
  std::vector<double> sums;        // [heads][dim]
  std::vector<float> parts;        // split: [splits][heads][dim]
  std::vector<const float*> rows;  // cpu: each key where it is stored, or in `keys` when that is not f32
};

/// Attention of each query over its window and the compressed rows chosen for it, with a sink:
///
///   z_s    = q[t,h] . key_s * scale
///   out    = sum over s of exp(z_s - M) * key_s / (sum over s of exp(z_s - M) + exp(sink[h] - M))
///
/// A key is also its value. Keys of the query at position p, in this order: window rows of positions
/// max(0, p - window + 1) .. p; then compressed rows, ascending: those in `selected` (-1: none), or, when `selected` is
/// a null view, all visible ones, n < (p + 1) div rate. M is the largest of the z and the sink.
///
/// q, out     [tokens, heads, dim] f32; the first token is at first_position · scale: what query_scale returned for q
/// window_rows, rows   stored rows of dim values in any format; rate 0: no compressed rows
/// selected   [tokens, k] i32 · sinks [heads] f32
/// ref: dot products, weight sums and value sums are f64 chains over dim, keys and keys; a weight exp(z - M) is rounded
/// to f32 before it meets the sums, so that its product with a key is exact.
/// cpu: f32. Value sums are one chain over the keys in their order; a dot product is sixteen interleaved chains over
/// dim (d mod 16), a sum of weights sixteen over the keys (place mod 16), both added in a fixed tree. Source: model
/// specification 3.5, 3.7, 3.9.
struct SparseAttention {
  View<const float, 3> q;
  double scale;
  std::int64_t first_position;
  PagedRows window_rows;
  std::int64_t window;
  PagedRows rows;
  std::int64_t rate;
  View<const std::int32_t, 2> selected;
  View<const float, 1> sinks;
  View<float, 3> out;
  AttentionScratch* scratch;
};
void sparse_attention_ref(const SparseAttention& a);
void sparse_attention_cpu(const SparseAttention& a);

template <>
inline constexpr auto kCpuTwin<&sparse_attention_ref> = &sparse_attention_cpu;

/// One key of a query: row `row` of `rows`.
struct AttentionKey {
  const PagedRows* rows;
  std::int64_t row;
  std::int64_t position;  // of the window row, or of the first token that a compressed row covers
  bool compressed;

  /// Its values, to out [dim].
  void load(float* out) const { load_row(*rows, row, out); }
};

/// Calls visit(AttentionKey) for each key of token t, in the order above.
template <class Visit>
void for_each_key(const SparseAttention& a, std::int64_t t, Visit&& visit) {
  const std::int64_t position = a.first_position + t;
  const std::int64_t oldest = position + 1 > a.window ? position + 1 - a.window : 0;
  for (std::int64_t p = oldest; p <= position; ++p) visit(AttentionKey{&a.window_rows, p, p, false});
  if (a.rate == 0) return;
  const auto compressed = [&](std::int64_t n) { visit(AttentionKey{&a.rows, n, n * a.rate, true}); };
  if (a.selected.data() == nullptr)
    for (std::int64_t n = 0; n < (position + 1) / a.rate; ++n) compressed(n);
  else
    for (std::int64_t i = 0; i < a.selected.extent(1); ++i)
      if (const std::int32_t n = a.selected(t, i); n >= 0) compressed(n);
}

/// Scores of the `count` keys in scratch->keys: scratch->scores[s][h] = z_s, rows `padded_heads(heads)` apart.
void score_keys(const SparseAttention& a, std::int64_t t, std::int64_t count);
/// For keys [begin, end) of `count`: scratch->weights[h][s - begin] = exp(z_s - peak[h]) rounded to f32, rows end-begin
/// apart; total[h] += their sum; scratch->sums[h][:] = sum of weight * key.
void weigh_keys(const SparseAttention& a, std::int64_t begin, std::int64_t end, const double* peak, double* total);

inline std::int64_t padded_heads(std::int64_t heads) { return (heads + 7) / 8 * 8; }

/// Heads an attention op takes at most.
inline constexpr std::int64_t kMaxHeads = 128;

}  // namespace plumb
