#include <limits>

#include "base/lanes/lanes.h"
#include "base/math.h"
#include "ops/sparse_attention/gather_keys.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/sparse_attention/sparse_attention_cpu.inc"
#include "base/lanes/each_isa.inc"

void attend(const SparseAttention& a, std::int64_t t, std::int64_t count) {
  PLUMB_ON_BEST_ISA(attend_query(a, t, count));
}

}  // namespace

void sparse_attention_cpu(const SparseAttention& a) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2);
  CHECK(heads <= kMaxHeads && a.out.extents() == a.q.extents() && a.sinks.extent(0) == heads);
  CHECK(a.window_rows.width == dim && (a.rate == 0 || a.rows.width == dim));
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    std::int64_t next = 0;
    attend(a, t, gather_keys(a, t, [&](const AttentionKey&) { return next++; }));
  }
}

}  // namespace plumb
