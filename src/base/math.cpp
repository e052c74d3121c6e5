#include "base/math.h"

#include "base/isa.h"

namespace plumb::math {
namespace {

[[gnu::always_inline]] inline void exp_body(double* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = exp(values[i]);
}
void exp_baseline(double* values, std::size_t count) { exp_body(values, count); }
PLUMB_TARGET_AVX2 void exp_avx2(double* values, std::size_t count) { exp_body(values, count); }
PLUMB_TARGET_AVX512 void exp_avx512(double* values, std::size_t count) { exp_body(values, count); }

}  // namespace

void exp_all(std::span<double> values) {
  switch (best_isa()) {
    case Isa::avx512:
      return exp_avx512(values.data(), values.size());
    case Isa::avx2:
      return exp_avx2(values.data(), values.size());
    case Isa::baseline:
      return exp_baseline(values.data(), values.size());
  }
}

}  // namespace plumb::math
