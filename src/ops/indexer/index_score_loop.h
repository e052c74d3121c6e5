#pragma once

#include <algorithm>
#include <cmath>

#include "ops/indexer/indexer.h"
#include "ops/linear/dot_rows.h"
#include "ops/stored_rows/stored_rows.h"

namespace plumb {

/// Queries whose scores are computed side by side: their heads are the outputs of one matrix product with the keys.
inline constexpr std::int64_t kIndexQueryTile = 16;
/// Keys a step covers at most.
inline constexpr std::int64_t kIndexKeyTile = 32;

namespace detail {

// The queries [first, first + count) transposed: [dim][count*heads], each row padded to a multiple of 8 with zeros.
inline std::int64_t transpose_queries(const View<const float, 3>& q, std::int64_t first, std::int64_t count,
                                      std::vector<float>& out) {
  const std::int64_t heads = q.extent(1), dim = q.extent(2), lanes = (count * heads + 7) / 8 * 8;
  out.assign(static_cast<std::size_t>(dim * lanes), 0.0f);
  for (std::int64_t i = 0; i < count * heads; ++i) {
    const float* row = q.row(first) + i * dim;
    for (std::int64_t d = 0; d < dim; ++d) out[static_cast<std::size_t>(d * lanes + i)] = row[d];
  }
  return lanes;
}

// g of one query: head weights scaled by dim^-0.5 * heads^-0.5, in f64.
inline void scaled_weights(const float* head_weights, std::int64_t heads, std::int64_t dim, double* g) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim)) / std::sqrt(static_cast<double>(heads));
  for (std::int64_t h = 0; h < heads; ++h) g[h] = head_weights[h] * scale;
}

}  // namespace detail

template <class Visit>
void for_each_index_score(const View<const float, 3>& q, const View<const float, 2>& head_weights,
                          const PagedRows& keys, std::int64_t first_position, std::int64_t rate, Visit&& visit) {
  const std::int64_t tokens = q.extent(0), heads = q.extent(1), dim = q.extent(2);
  CHECK(keys.width == dim && head_weights.extent(0) == tokens && head_weights.extent(1) == heads);
  std::vector<float> transposed, loaded(static_cast<std::size_t>(kIndexKeyTile * dim));
  std::vector<double> g(static_cast<std::size_t>(kIndexQueryTile * heads)), dots;
  for (std::int64_t first = 0; first < tokens; first += kIndexQueryTile) {
    const std::int64_t count = std::min(kIndexQueryTile, tokens - first);
    const std::int64_t lanes = detail::transpose_queries(q, first, count, transposed);
    for (std::int64_t t = 0; t < count; ++t)
      detail::scaled_weights(head_weights.row(first + t), heads, dim, g.data() + t * heads);
    dots.resize(static_cast<std::size_t>(kIndexKeyTile * lanes));
    const std::int64_t visible = (first_position + first + count) / rate;
    for (std::int64_t n = 0; n < visible;) {
      // Rows are contiguous inside a page only.
      const std::int64_t page_end = (n / keys.rows_per_page + 1) * keys.rows_per_page;
      const std::int64_t rows = std::min({kIndexKeyTile, page_end - n, visible - n});
      dot_rows({.x = load_rows(keys, n, rows, loaded.data()),
                .x_stride = dim,
                .w = transposed.data(),
                .w_stride = lanes,
                .rows = rows,
                .in = dim,
                .out = lanes},
               dots.data(), lanes);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t t = 0; t < count; ++t) {
          if (n + r >= (first_position + first + t + 1) / rate) continue;
          const double* dot = dots.data() + r * lanes + t * heads;
          double score = 0.0;
          for (std::int64_t h = 0; h < heads; ++h) {
            const double positive = dot[h] > 0.0 || std::isnan(dot[h]) ? dot[h] : 0.0;
            score += g[static_cast<std::size_t>(t * heads + h)] * positive;
          }
          visit(first + t, n + r, static_cast<float>(score));
        }
      n += rows;
    }
  }
}

}  // namespace plumb
