#include <limits>

#include "base/lanes/lanes.h"
#include "ops/compressor/compressor.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/compressor/compressor_cpu.inc"
#include "base/lanes/each_isa.inc"

void pool(const CompressorItem* items, std::int64_t item_count, std::int64_t first, std::int64_t count, float* pooled) {
  PLUMB_ON_BEST_ISA(pool_lanes(items, item_count, first, count, pooled));
}

}  // namespace

void compressor_cpu(const Compressor& a) { compress_rows(a, &pool, Backend::cpu); }

}  // namespace plumb
