#include <algorithm>

#include "base/math.h"
#include "ops/linear/dot_rows.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace plumb {

void score_keys(const SparseAttention& a, std::int64_t t, std::int64_t count) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2), lanes = padded_heads(heads);
  AttentionScratch& s = *a.scratch;
  s.query.assign(static_cast<std::size_t>(dim * lanes), 0.0f);
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < dim; ++d) s.query[static_cast<std::size_t>(d * lanes + h)] = a.q(t, h, d);
  s.scores.resize(static_cast<std::size_t>(count * lanes));
  dot_rows({.x = s.keys.data(),
            .x_stride = dim,
            .w = s.query.data(),
            .w_stride = lanes,
            .rows = count,
            .in = dim,
            .out = lanes},
           s.scores.data(), lanes);
  for (double& score : s.scores) score *= a.scale;
}

void weigh_keys(const SparseAttention& a, std::int64_t begin, std::int64_t end, const double* peak, double* total) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2), lanes = padded_heads(heads), count = end - begin;
  AttentionScratch& s = *a.scratch;
  double* z = s.scores.data() + begin * lanes;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t h = 0; h < lanes; ++h) z[i * lanes + h] -= h < heads ? peak[h] : 0.0;
  math::exp_all({z, static_cast<std::size_t>(count * lanes)});
  s.weights.resize(static_cast<std::size_t>(heads * count));
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t h = 0; h < heads; ++h) {
      const float weight = static_cast<float>(z[i * lanes + h]);
      s.weights[static_cast<std::size_t>(h * count + i)] = weight;
      total[h] += weight;
    }
  s.sums.resize(static_cast<std::size_t>(heads * dim));
  dot_rows({.x = s.weights.data(),
            .x_stride = count,
            .w = s.keys.data() + begin * dim,
            .w_stride = dim,
            .rows = heads,
            .in = count,
            .out = dim},
           s.sums.data(), dim);
}

void sparse_attention_ref(const SparseAttention& a) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2), lanes = padded_heads(heads);
  CHECK(heads <= kMaxHeads && a.out.extents() == a.q.extents() && a.sinks.extent(0) == heads);
  CHECK(a.window_rows.width == dim && (a.rate == 0 || a.rows.width == dim));
  AttentionScratch& s = *a.scratch;
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    std::int64_t count = 0;
    for_each_key(a, t, [&](const AttentionKey& key) {
      // Grows by doubling and is kept for the next query.
      if (static_cast<std::int64_t>(s.keys.size()) < (count + 1) * dim) s.keys.resize(2 * s.keys.size() + dim);
      key.load(s.keys.data() + count++ * dim);
    });
    score_keys(a, t, count);
    double peak[kMaxHeads], total[kMaxHeads];
    for (std::int64_t h = 0; h < heads; ++h) peak[h] = a.sinks(h);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        peak[h] = std::max(peak[h], s.scores[static_cast<std::size_t>(i * lanes + h)]);
    std::fill_n(total, heads, 0.0);
    weigh_keys(a, 0, count, peak, total);
    for (std::int64_t h = 0; h < heads; ++h) {
      const double sum = total[h] + math::exp(a.sinks(h) - peak[h]);
      for (std::int64_t d = 0; d < dim; ++d)
        a.out(t, h, d) = static_cast<float>(s.sums[static_cast<std::size_t>(h * dim + d)] / sum);
    }
  }
}

}  // namespace plumb
