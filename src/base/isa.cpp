#include "base/isa.h"

#include <atomic>

#include "base/check.h"

namespace plumb {
namespace {

Isa detect() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return Isa::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::baseline;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{detect()};
  return isa;
}

}  // namespace

Isa best_isa() { return chosen().load(std::memory_order_relaxed); }

bool has_isa(Isa isa) { return isa <= detect(); }

void force_isa(Isa isa) {
  CHECK(has_isa(isa));
  chosen().store(isa, std::memory_order_relaxed);
}

}  // namespace plumb
