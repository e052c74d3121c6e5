#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/hyper_connection/parts.h"
#include "ops/hyper_connection_fused/hyper_connection_fused.h"
#include "ops/rms_norm/rms_norm.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

void pre_in_tiles(const HcPre& a) {
  constexpr std::int64_t kTile = 8;
  check_ports(a);
  const std::int64_t rows = a.streams.extent(0), in = a.fn.extent(0), mixes = a.fn.extent(1);
  const auto product = a.product != nullptr ? a.product : &hc_mix_ref;
  double mix[kTile * kMaxMixes], squares[kTile], pre[kMaxStreams];
  for (std::int64_t first = 0; first < rows; first += kTile) {
    const std::int64_t count = std::min(kTile, rows - first);
    product({.streams = a.streams.rows(first, first + count),
             .fn = a.fn,
             .fn_bf16 = a.fn_bf16,
             .mix = {mix, {count, mixes}}});
    sum_of_squares(a.streams.row(first), in, count, in, squares);
    for (std::int64_t r = 0; r < count; ++r) {
      hc_coefficients(a, first + r, mix + r * mixes, 1.0 / std::sqrt(squares[r] / static_cast<double>(in) + a.eps),
                      pre);
      hc_collapse(a, first + r, pre);
    }
  }
}

void post_in_tiles(const HcPost& a) {
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

}  // namespace

void hc_separate_ref(const HcStep& a) {
  if (a.pre != nullptr) hc_pre_ref(*a.pre);
  if (a.post != nullptr) hc_post_ref(*a.post);
}

void hc_fused_ref(const HcStep& a) {
  if (a.pre != nullptr) pre_in_tiles(*a.pre);
  if (a.post != nullptr) post_in_tiles(*a.post);
}

void hc_mix_bf16(const HcMix& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  const std::int64_t mixes = a.fn_bf16.extent(1);
  CHECK(a.fn_bf16.extent(0) == n * d && a.mix.extent(0) == rows && a.mix.extent(1) == mixes);
  std::vector<float> rounded(static_cast<std::size_t>(std::min(rows, kMixRows) * n * d));
  float mix[kMixRows * kMaxMixes];
  for (std::int64_t first = 0; first < rows; first += kMixRows) {
    const std::int64_t count = std::min(kMixRows, rows - first);
    const float* streams = a.streams.row(first);
    for (std::int64_t i = 0; i < count * n * d; ++i) rounded[static_cast<std::size_t>(i)] = round_to_bf16(streams[i]);
    mix_streams_cpu({rounded.data(), {count, n, d}}, a.fn_bf16, mix);
    std::copy_n(mix, count * mixes, a.mix.row(first));
  }
}

}  // namespace plumb
