#include "base/lanes/lanes.h"
#include "ops/rms_norm/rms_norm.h"

namespace plumb {
namespace {
#define PLUMB_KERNELS "ops/rms_norm/rms_norm_cpu.inc"
#include "base/lanes/each_isa.inc"
}  // namespace

void rms_norm_cpu(const RmsNorm& a) {
  CHECK(a.out.extents() == a.x.extents() && a.x.extent(1) > 0);
  CHECK(a.weight.data() == nullptr || a.weight.extent(0) == a.x.extent(1));
  PLUMB_ON_BEST_ISA(rms_norm(a));
}

}  // namespace plumb
