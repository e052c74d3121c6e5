#include "ops/indexer_fused/indexer_fused.h"
#include "ops/select_topk/select_topk.h"

namespace plumb {

void indexer_fused_ref(const Indexer& a) {
  const std::int64_t tokens = a.q.extent(0), k = a.selected.extent(1);
  CHECK(a.selected.extent(0) == tokens);
  std::vector<TopK> best(static_cast<std::size_t>(kIndexQueryTile), TopK(k));
  for (std::int64_t first = 0; first < tokens; first += kIndexQueryTile) {
    const std::int64_t count = std::min(kIndexQueryTile, tokens - first);
    for (TopK& top : best) top.clear();
    for_each_index_score(View<const float, 3>(a.q.row(first), {count, a.q.extent(1), a.q.extent(2)}),
                         a.head_weights.rows(first, first + count), a.keys, a.first_position + first, a.rate,
                         [&](std::int64_t t, std::int64_t n, float score) {
                           best[static_cast<std::size_t>(t)].offer(score, static_cast<std::int32_t>(n));
                         });
    for (std::int64_t t = 0; t < count; ++t) best[static_cast<std::size_t>(t)].write(a.selected.row(first + t));
  }
}

}  // namespace plumb
