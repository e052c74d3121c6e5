#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/view.h"
#include "ops/paged_rows.h"
#include "switches/backend.h"

namespace plumb {

/// score[t, n] = sum over h of g[t, h] * max(0, q[t, h] . key[n]),  g = head_weights * dim^-0.5 * heads^-0.5
///
/// for the rows visible to the token: n < (p + 1) div rate, p = first_position + t.
/// q            [tokens, heads, dim] f32
/// head_weights [tokens, heads] f32, may be negative
/// keys         rows of dim f32
/// scores       [tokens, rows] f32, rows >= those visible to the last token; -inf where a row is not visible
/// ref: dot products are f64 chains in ascending dim, the sum over heads an f64 chain in ascending h, rounded once.
/// cpu: f32; a dot product is sixteen interleaved chains over dim (d mod 16), added in a fixed tree.
/// Source: model specification 3.8.
struct IndexerScores {
  View<const float, 3> q;
  View<const float, 2> head_weights;
  PagedRows keys;
  std::int64_t first_position;
  std::int64_t rate;
  View<float, 2> scores;
};
void indexer_scores_ref(const IndexerScores& a);

/// Scores and selection together: what the switch indexer.fused chooses between.
///
/// selected [tokens, k] i32 as in SelectTopk; the other ports as in IndexerScores. The off side stores `scores`, shows
/// them to `seen` when that is set (which may change them), and selects; the on side touches neither.
struct Indexer {
  View<const float, 3> q;
  View<const float, 2> head_weights;
  PagedRows keys;
  std::int64_t first_position;
  std::int64_t rate;
  View<float, 2> scores;
  const std::function<void(View<float, 2>)>* seen;
  View<std::int32_t, 2> selected;
};
/// indexer_scores_ref, then select_topk_ref.
void indexer_ref(const Indexer& a);
void indexer_cpu(const Indexer& a);

template <>
inline constexpr auto kCpuTwin<&indexer_ref> = &indexer_cpu;

/// Keys that indexer scores of backend cpu are computed for at one time, at most.
inline constexpr std::int64_t kIndexKeyBlock = 64;
/// Scores of backend cpu, block by block of keys: calls visit(t, n, scores, count) with the scores of token t for the
/// visible keys n .. n + count - 1, ascending in n for each t.
using IndexScores = std::function<void(std::int64_t t, std::int64_t n, const float* scores, std::int64_t count)>;
void for_each_index_score_cpu(const Indexer& a, const IndexScores& visit);

/// The inner loop that both sides share: calls visit(t, n, score) for the visible rows of every token, ascending in n
/// for each t.
template <class Visit>
void for_each_index_score(const View<const float, 3>& q, const View<const float, 2>& head_weights,
                          const PagedRows& keys, std::int64_t first_position, std::int64_t rate, Visit&& visit);

}  // namespace plumb

#include "ops/indexer/index_score_loop.h"
