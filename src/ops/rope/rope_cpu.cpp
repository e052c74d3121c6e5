#include "base/lanes/lanes.h"
#include "ops/rope/rope.h"

namespace plumb {
namespace {
#define PLUMB_KERNELS "ops/rope/rope_cpu.inc"
#include "base/lanes/each_isa.inc"
}  // namespace

void rope_cpu(const Rope& a) {
  const std::int64_t pairs = a.table.extent(1);
  CHECK(a.table.extent(0) == a.x.extent(0) && a.table.extent(2) == 2 && 2 * pairs <= a.x.extent(2));
  CHECK(pairs <= kMaxRopePairs);
  PLUMB_ON_BEST_ISA(rope(a));
}

}  // namespace plumb
