#include <limits>

#include "base/lanes/lanes.h"
#include "base/math.h"
#include "ops/merge_splits/merge_splits.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/merge_splits/merge_splits_cpu.inc"
#include "base/lanes/each_isa.inc"

}  // namespace

void merge_splits_cpu(const MergeSplits& a) {
  CHECK(a.part.extent(0) <= kMaxSplits && a.lse.extent(0) == a.part.extent(0));
  CHECK(a.out.extent(0) == a.part.extent(1) && a.out.extent(1) == a.part.extent(2) &&
        a.out.extent(2) == a.part.extent(3));
  PLUMB_ON_BEST_ISA(merge(a));
}

}  // namespace plumb
