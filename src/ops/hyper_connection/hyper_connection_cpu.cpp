#include <algorithm>
#include <vector>

#include "base/lanes/lanes.h"
#include "ops/hyper_connection/parts.h"
#include "ops/hyper_connection_fused/hyper_connection_fused.h"
#include "ops/linear/dot_rows_cpu.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/hyper_connection/hyper_connection_cpu.inc"
#include "base/lanes/each_isa.inc"

void mix_four_streams(const float* streams, std::int64_t d, const float* fn, std::int64_t mixes, float* mix) {
  PLUMB_ON_BEST_ISA(mix_one_row(streams, d, fn, mixes, mix));
}

void pre_tile(const HcPre& a, std::int64_t first, std::int64_t count, const double* mix) {
  PLUMB_ON_BEST_ISA(pre_rows(a, first, count, mix));
}

void pre_all(const HcPre& a, const double* mix, float* factors, float* pre) {
  PLUMB_ON_BEST_ISA(pre_steps(a, mix, factors, pre));
}

void post_tile(const HcPost& a) { PLUMB_ON_BEST_ISA(post_rows(a)); }

void post_all(const HcPost& a, float* sums) { PLUMB_ON_BEST_ISA(post_steps(a, sums)); }

void pre_in_tiles(const HcPre& a) {
  check_ports(a);
  const std::int64_t rows = a.streams.extent(0), mixes = a.fn.extent(1);
  const auto product = a.product != nullptr ? a.product : &hc_mix_cpu;
  double mix[kMixRows * kMaxMixes];
  for (std::int64_t first = 0; first < rows; first += kMixRows) {
    const std::int64_t count = std::min(kMixRows, rows - first);
    product({.streams = a.streams.rows(first, first + count),
             .fn = a.fn,
             .fn_bf16 = a.fn_bf16,
             .mix = {mix, {count, mixes}}});
    pre_tile(a, first, count, mix);
  }
}

void check_ports(const HcPost& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  CHECK(n <= kMaxStreams && a.y.extent(0) == rows && a.y.extent(1) == d && a.comb.extent(0) == rows);
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

void hc_mix_cpu(const HcMix& a) {
  const std::int64_t rows = a.streams.extent(0), mixes = a.fn.extent(1);
  CHECK(a.mix.extent(0) == rows && a.mix.extent(1) == mixes);
  float mix[kMixRows * kMaxMixes];
  for (std::int64_t first = 0; first < rows; first += kMixRows) {
    const std::int64_t count = std::min(kMixRows, rows - first);
    mix_streams_cpu(a.streams.rows(first, first + count), a.fn, mix);
    std::copy_n(mix, count * mixes, a.mix.row(first));
  }
}

void hc_pre_cpu(const HcPre& a) {
  check_ports(a);
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), mixes = a.fn.extent(1);
  std::vector<double> mix(static_cast<std::size_t>(rows * mixes));
  std::vector<float> factors(static_cast<std::size_t>(rows)), pre(static_cast<std::size_t>((rows + 15) / 16 * 16 * n));
  const auto product = a.product != nullptr ? a.product : &hc_mix_cpu;
  product({.streams = a.streams, .fn = a.fn, .fn_bf16 = a.fn_bf16, .mix = {mix.data(), {rows, mixes}}});
  pre_all(a, mix.data(), factors.data(), pre.data());
}

void hc_post_cpu(const HcPost& a) {
  check_ports(a);
  std::vector<float> sums(static_cast<std::size_t>(a.streams.size()));
  post_all(a, sums.data());
  std::copy(sums.begin(), sums.end(), a.streams.data());
}

void hc_separate_cpu(const HcStep& a) {
  if (a.pre != nullptr) hc_pre_cpu(*a.pre);
  if (a.post != nullptr) hc_post_cpu(*a.post);
}

void hc_fused_cpu(const HcStep& a) {
  if (a.pre != nullptr) pre_in_tiles(*a.pre);
  if (a.post == nullptr) return;
  check_ports(*a.post);
  post_tile(*a.post);
}

}  // namespace plumb
