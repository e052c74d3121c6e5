#include <algorithm>
#include <cmath>
#include <vector>

#include "base/math.h"
#include "ops/hyper_connection/parts.h"
#include "ops/linear/dot_rows.h"
#include "ops/rms_norm/rms_norm.h"

namespace plumb {
namespace {

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

}  // namespace

void hc_coefficients(const HcPre& a, std::int64_t t, const double* mix, double factor, double* pre) {
  const std::int64_t n = a.streams.extent(1);
  for (std::int64_t j = 0; j < n; ++j) {
    pre[j] = math::sigmoid(mix[j] * factor * a.scale(0) + a.base(j)) + a.hc_eps;
    a.post(t, j) = static_cast<float>(2.0 * math::sigmoid(mix[n + j] * factor * a.scale(1) + a.base(n + j)));
  }
  double comb[kMaxStreams * kMaxStreams];
  for (std::int64_t i = 0; i < n * n; ++i) comb[i] = mix[2 * n + i] * factor * a.scale(2) + a.base(2 * n + i);
  sinkhorn(comb, n, a.hc_eps, a.iters);
  for (std::int64_t i = 0; i < n * n; ++i) a.comb.row(t)[i] = static_cast<float>(comb[i]);
}

void hc_collapse(const HcPre& a, std::int64_t t, const double* pre) {
  const std::int64_t n = a.streams.extent(1), d = a.streams.extent(2);
  const float* streams = a.streams.row(t);
  float* collapsed = a.collapsed.row(t);
  for (std::int64_t c = 0; c < d; ++c) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < n; ++j) sum += pre[j] * streams[j * d + c];
    collapsed[c] = static_cast<float>(sum);
  }
}

void expand_streams_ref(const ExpandStreams& a) {
  const std::int64_t d = a.x.extent(1);
  CHECK(a.streams.extent(0) == a.x.extent(0) && a.streams.extent(2) == d);
  for (std::int64_t t = 0; t < a.x.extent(0); ++t)
    for (std::int64_t j = 0; j < a.streams.extent(1); ++j) std::copy_n(a.x.row(t), d, a.streams.row(t) + j * d);
}

void check_ports(const HcPre& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  const std::int64_t mixes = n * (2 + n);
  CHECK(n <= kMaxStreams && a.fn.extent(0) == n * d && a.fn.extent(1) == mixes && a.base.extent(0) == mixes);
  CHECK(a.post.extent(0) == rows && a.comb.extent(0) == rows && a.collapsed.extent(0) == rows);
}

void hc_mix_ref(const HcMix& a) {
  const std::int64_t rows = a.streams.extent(0), in = a.fn.extent(0), mixes = a.fn.extent(1);
  CHECK(a.streams.extent(1) * a.streams.extent(2) == in && a.mix.extent(0) == rows && a.mix.extent(1) == mixes);
  dot_rows({.x = a.streams.data(),
            .x_stride = in,
            .w = a.fn.data(),
            .w_stride = mixes,
            .rows = rows,
            .in = in,
            .out = mixes},
           a.mix.data(), mixes);
}

void hc_pre_ref(const HcPre& a) {
  check_ports(a);
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), in = a.fn.extent(0), mixes = a.fn.extent(1);
  std::vector<double> mix(static_cast<std::size_t>(rows * mixes)), squares(static_cast<std::size_t>(rows));
  std::vector<double> pre(static_cast<std::size_t>(rows * n));
  const auto product = a.product != nullptr ? a.product : &hc_mix_ref;
  product({.streams = a.streams, .fn = a.fn, .fn_bf16 = a.fn_bf16, .mix = {mix.data(), {rows, mixes}}});
  sum_of_squares(a.streams.data(), in, rows, in, squares.data());
  for (std::int64_t t = 0; t < rows; ++t)
    hc_coefficients(a, t, mix.data() + t * mixes,
                    1.0 / std::sqrt(squares[static_cast<std::size_t>(t)] / static_cast<double>(in) + a.eps),
                    pre.data() + t * n);
  for (std::int64_t t = 0; t < rows; ++t) hc_collapse(a, t, pre.data() + t * n);
}

void hc_post_ref(const HcPost& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  CHECK(n <= kMaxStreams && a.y.extent(0) == rows && a.y.extent(1) == d && a.comb.extent(0) == rows);
  std::vector<double> sums(static_cast<std::size_t>(rows * n * d));
  const View<double, 3> sum(sums.data(), {rows, n, d});
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t c = 0; c < d; ++c) sum(t, k, c) = static_cast<double>(a.post(t, k)) * a.y(t, c);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t k = 0; k < n; ++k)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t c = 0; c < d; ++c) sum(t, k, c) += static_cast<double>(a.comb(t, j, k)) * a.streams(t, j, c);
  for (std::size_t i = 0; i < sums.size(); ++i) a.streams.data()[i] = static_cast<float>(sums[i]);
}

}  // namespace plumb
