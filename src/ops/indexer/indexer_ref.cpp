#include <limits>

#include "ops/indexer/indexer.h"
#include "ops/select_topk/select_topk.h"

namespace plumb {

void indexer_scores_ref(const IndexerScores& a) {
  const std::int64_t tokens = a.q.extent(0);
  CHECK(a.scores.extent(0) == tokens && a.scores.extent(1) >= (a.first_position + tokens) / a.rate);
  std::fill_n(a.scores.data(), a.scores.size(), -std::numeric_limits<float>::infinity());
  for_each_index_score(a.q, a.head_weights, a.keys, a.first_position, a.rate,
                       [&](std::int64_t t, std::int64_t n, float score) { a.scores(t, n) = score; });
}

void indexer_ref(const Indexer& a) {
  indexer_scores_ref({.q = a.q,
                      .head_weights = a.head_weights,
                      .keys = a.keys,
                      .first_position = a.first_position,
                      .rate = a.rate,
                      .scores = a.scores});
  if (a.seen != nullptr) (*a.seen)(a.scores);
  select_topk_ref({.scores = a.scores, .first_position = a.first_position, .rate = a.rate, .selected = a.selected});
}

}  // namespace plumb
