#include "ops/indexer_fused/indexer_fused.h"
#include "ops/select_topk/best_rows.h"

namespace plumb {

void indexer_fused_cpu(const Indexer& a) {
  const std::int64_t tokens = a.q.extent(0);
  CHECK(a.selected.extent(0) == tokens);
  std::vector<BestRows> best(static_cast<std::size_t>(tokens), BestRows(a.selected.extent(1)));
  for_each_index_score_cpu(a, [&](std::int64_t t, std::int64_t n, const float* scores, std::int64_t count) {
    best[static_cast<std::size_t>(t)].offer(scores, static_cast<std::int32_t>(n), count);
  });
  for (std::int64_t t = 0; t < tokens; ++t) best[static_cast<std::size_t>(t)].write(a.selected.row(t));
}

}  // namespace plumb
