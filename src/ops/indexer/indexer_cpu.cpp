#include <algorithm>
#include <cmath>
#include <limits>

#include "base/lanes/lanes.h"
#include "ops/indexer/indexer.h"
#include "ops/select_topk/select_topk.h"
#include "ops/stored_rows/stored_rows.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/indexer/indexer_cpu.inc"
#include "base/lanes/each_isa.inc"

void score(const float* q, std::int64_t heads, std::int64_t dim, const float* g, const float* const* keys,
           std::int64_t count, float* dots, float* scores) {
  PLUMB_ON_BEST_ISA(score_block(q, heads, dim, g, keys, count, dots, scores));
}

}  // namespace

void for_each_index_score_cpu(const Indexer& a, const IndexScores& visit) {
  const std::int64_t tokens = a.q.extent(0), heads = a.q.extent(1), dim = a.q.extent(2);
  CHECK(a.keys.width == dim && a.head_weights.extent(0) == tokens && a.head_weights.extent(1) == heads);
  const auto scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)) / std::sqrt(static_cast<double>(heads)));
  std::vector<float> g(static_cast<std::size_t>(tokens * heads)),
      dots(static_cast<std::size_t>(heads * kIndexKeyBlock));
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = a.head_weights.data()[i] * scale;
  std::vector<float> loaded(static_cast<std::size_t>(kIndexKeyBlock * dim));
  const float* keys[kIndexKeyBlock];
  float scores[kIndexKeyBlock];
  const std::int64_t visible = (a.first_position + tokens) / a.rate;
  for (std::int64_t n = 0; n < visible;) {
    // Rows are contiguous inside a page only.
    const std::int64_t page_end = (n / a.keys.rows_per_page + 1) * a.keys.rows_per_page;
    const std::int64_t rows = std::min({kIndexKeyBlock, page_end - n, visible - n});
    const float* const first = load_rows(a.keys, n, rows, loaded.data());
    for (std::int64_t i = 0; i < rows; ++i) keys[i] = first + i * dim;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t count = std::min(rows, (a.first_position + t + 1) / a.rate - n);
      if (count <= 0) continue;
      score(a.q.row(t), heads, dim, g.data() + t * heads, keys, count, dots.data(), scores);
      visit(t, n, scores, count);
    }
    n += rows;
  }
}

void indexer_cpu(const Indexer& a) {
  const std::int64_t tokens = a.q.extent(0);
  CHECK(a.scores.extent(0) == tokens && a.scores.extent(1) >= (a.first_position + tokens) / a.rate);
  for_each_index_score_cpu(a, [&](std::int64_t t, std::int64_t n, const float* scores, std::int64_t count) {
    std::copy_n(scores, count, a.scores.row(t) + n);
  });
  for (std::int64_t t = 0; t < tokens; ++t)
    std::fill(a.scores.row(t) + (a.first_position + t + 1) / a.rate, a.scores.row(t) + a.scores.extent(1),
              -std::numeric_limits<float>::infinity());
  if (a.seen != nullptr) (*a.seen)(a.scores);
  select_topk_cpu({.scores = a.scores, .first_position = a.first_position, .rate = a.rate, .selected = a.selected});
}

}  // namespace plumb
