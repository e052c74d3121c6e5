#include <algorithm>

#include "base/lanes/lanes.h"
#include "base/math.h"
#include "ops/head/head.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/head/head_cpu.inc"
#include "base/lanes/each_isa.inc"

void head_tile(const HcHead& a, std::int64_t first, std::int64_t count, float* mix) {
  PLUMB_ON_BEST_ISA(head_rows(a, first, count, mix));
}

}  // namespace

void hc_head_cpu(const HcHead& a) {
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  CHECK(n <= kMaxStreams && a.fn.extent(0) == n * d && a.fn.extent(1) == n && a.out.extent(0) == rows);
  float mix[kMixRows * kMaxStreams];
  for (std::int64_t first = 0; first < rows; first += kMixRows) {
    const std::int64_t count = std::min(kMixRows, rows - first);
    mix_streams_cpu(a.streams.rows(first, first + count), a.fn, mix);
    head_tile(a, first, count, mix);
  }
}

}  // namespace plumb
