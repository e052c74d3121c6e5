#include <algorithm>

#include "base/lanes/lanes.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/linear/dot_rows_cpu.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/hyper_connection/hyper_connection_cpu.inc"
#include "base/lanes/each_isa.inc"

void mix_four_streams(const float* streams, std::int64_t d, const float* fn, std::int64_t mixes, float* mix) {
  PLUMB_ON_BEST_ISA(mix_one_row(streams, d, fn, mixes, mix));
}

void pre_tile(const HcPre& a, std::int64_t first, std::int64_t count, const float* mix) {
  PLUMB_ON_BEST_ISA(pre_rows(a, first, count, mix));
}

}  // namespace

void mix_streams_cpu(const View<const float, 3>& streams, const View<const float, 2>& fn, float* mix) {
  const std::int64_t rows = streams.extent(0), n = streams.extent(1), d = streams.extent(2), mixes = fn.extent(1);
  CHECK(rows <= kMixRows && n <= kMaxStreams && mixes <= kMaxMixes && fn.extent(0) == n * d);
  if (rows == 1 && n == 4) return mix_four_streams(streams.data(), d, fn.data(), mixes, mix);
  float one[kMixRows * kMaxMixes];
  for (std::int64_t j = 0; j < n; ++j) {
    dot_rows_cpu({.x = streams.data() + j * d,
                  .x_stride = n * d,
                  .w = fn.data() + j * d * mixes,
                  .w_stride = mixes,
                  .rows = rows,
                  .in = d,
                  .out = mixes},
                 j == 0 ? mix : one, mixes);
    for (std::int64_t i = 0; j > 0 && i < rows * mixes; ++i) mix[i] += one[i];
  }
}

void hc_pre_cpu(const HcPre& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  const std::int64_t mixes = n * (2 + n);
  CHECK(n <= kMaxStreams && a.fn.extent(0) == n * d && a.fn.extent(1) == mixes && a.base.extent(0) == mixes);
  CHECK(a.post.extent(0) == rows && a.comb.extent(0) == rows && a.collapsed.extent(0) == rows);
  float mix[kMixRows * kMaxMixes];
  for (std::int64_t first = 0; first < rows; first += kMixRows) {
    const std::int64_t count = std::min(kMixRows, rows - first);
    mix_streams_cpu(a.streams.rows(first, first + count), a.fn, mix);
    pre_tile(a, first, count, mix);
  }
}

void hc_post_cpu(const HcPost& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  CHECK(n <= kMaxStreams && a.y.extent(0) == rows && a.y.extent(1) == d && a.comb.extent(0) == rows);
  PLUMB_ON_BEST_ISA(post_rows(a));
}

}  // namespace plumb
