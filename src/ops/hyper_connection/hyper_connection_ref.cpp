#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/linear/dot_rows.h"
#include "ops/rms_norm/rms_norm.h"

namespace plumb {
namespace {

constexpr std::int64_t kRowTile = 8;
constexpr std::int64_t kMaxMix = kMaxStreams * (2 + kMaxStreams);

void divide_rows(double* c, std::int64_t n, double eps) {
  for (std::int64_t j = 0; j < n; ++j) {
    double sum = 0.0;
    for (std::int64_t k = 0; k < n; ++k) sum += c[j * n + k];
    for (std::int64_t k = 0; k < n; ++k) c[j * n + k] /= sum + eps;
  }
}

void divide_columns(double* c, std::int64_t n, double eps) {
  double sum[kMaxStreams] = {};
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t k = 0; k < n; ++k) sum[k] += c[j * n + k];
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t k = 0; k < n; ++k) c[j * n + k] /= sum[k] + eps;
}

// Sinkhorn's iteration on c [n][n], from logits to (nearly) doubly stochastic; ends on columns.
void sinkhorn(double* c, std::int64_t n, double eps, std::int64_t iters) {
  for (std::int64_t j = 0; j < n; ++j) {
    const double peak = *std::max_element(c + j * n, c + (j + 1) * n);
    double sum = 0.0;
    for (std::int64_t k = 0; k < n; ++k) sum += c[j * n + k] = math::exp(c[j * n + k] - peak);
    for (std::int64_t k = 0; k < n; ++k) c[j * n + k] = c[j * n + k] / sum + eps;
  }
  divide_columns(c, n, eps);
  for (std::int64_t i = 1; i < iters; ++i) {
    divide_rows(c, n, eps);
    divide_columns(c, n, eps);
  }
}

// One token; `mix` is v fn before the division by the root mean square.
void pre_row(const HcPre& a, std::int64_t t, const double* mix, double factor) {
  const std::int64_t n = a.streams.extent(1), d = a.streams.extent(2);
  double pre[kMaxStreams];
  for (std::int64_t j = 0; j < n; ++j) {
    pre[j] = math::sigmoid(mix[j] * factor * a.scale(0) + a.base(j)) + a.hc_eps;
    a.post(t, j) = static_cast<float>(2.0 * math::sigmoid(mix[n + j] * factor * a.scale(1) + a.base(n + j)));
  }
  double comb[kMaxStreams * kMaxStreams];
  for (std::int64_t i = 0; i < n * n; ++i) comb[i] = mix[2 * n + i] * factor * a.scale(2) + a.base(2 * n + i);
  sinkhorn(comb, n, a.hc_eps, a.iters);
  for (std::int64_t i = 0; i < n * n; ++i) a.comb.row(t)[i] = static_cast<float>(comb[i]);
  const float* streams = a.streams.row(t);
  float* collapsed = a.collapsed.row(t);
  for (std::int64_t c = 0; c < d; ++c) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < n; ++j) sum += pre[j] * streams[j * d + c];
    collapsed[c] = static_cast<float>(sum);
  }
}

}  // namespace

void expand_streams_ref(const ExpandStreams& a) {
  const std::int64_t d = a.x.extent(1);
  CHECK(a.streams.extent(0) == a.x.extent(0) && a.streams.extent(2) == d);
  for (std::int64_t t = 0; t < a.x.extent(0); ++t)
    for (std::int64_t j = 0; j < a.streams.extent(1); ++j) std::copy_n(a.x.row(t), d, a.streams.row(t) + j * d);
}

void hc_pre_ref(const HcPre& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  const std::int64_t mixes = n * (2 + n);
  CHECK(n <= kMaxStreams && a.fn.extent(0) == n * d && a.fn.extent(1) == mixes && a.base.extent(0) == mixes);
  CHECK(a.post.extent(0) == rows && a.comb.extent(0) == rows && a.collapsed.extent(0) == rows);
  double mix[kRowTile * kMaxMix], squares[kRowTile];
  for (std::int64_t first = 0; first < rows; first += kRowTile) {
    const std::int64_t count = std::min(kRowTile, rows - first);
    dot_rows({.x = a.streams.row(first),
              .x_stride = n * d,
              .w = a.fn.data(),
              .w_stride = mixes,
              .rows = count,
              .in = n * d,
              .out = mixes},
             mix, mixes);
    sum_of_squares(a.streams.row(first), n * d, count, n * d, squares);
    for (std::int64_t r = 0; r < count; ++r)
      pre_row(a, first + r, mix + r * mixes, 1.0 / std::sqrt(squares[r] / static_cast<double>(n * d) + a.eps));
  }
}

void hc_post_ref(const HcPost& a) {
  constexpr std::int64_t kChannels = 64;
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  CHECK(n <= kMaxStreams && a.y.extent(0) == rows && a.y.extent(1) == d && a.comb.extent(0) == rows);
  double sum[kMaxStreams][kChannels];
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t first = 0; first < d; first += kChannels) {
      const std::int64_t count = std::min(kChannels, d - first);
      const float* y = a.y.row(t) + first;
      float* streams = a.streams.row(t) + first;
      for (std::int64_t k = 0; k < n; ++k) {
        for (std::int64_t c = 0; c < count; ++c) sum[k][c] = static_cast<double>(a.post(t, k)) * y[c];
        for (std::int64_t j = 0; j < n; ++j)
          for (std::int64_t c = 0; c < count; ++c)
            sum[k][c] += static_cast<double>(a.comb(t, j, k)) * streams[j * d + c];
      }
      for (std::int64_t k = 0; k < n; ++k)
        for (std::int64_t c = 0; c < count; ++c) streams[k * d + c] = static_cast<float>(sum[k][c]);
    }
}

}  // namespace plumb
