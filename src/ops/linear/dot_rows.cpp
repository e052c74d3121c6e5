#include "ops/linear/dot_rows.h"

#include <cstring>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plumb {
namespace {

namespace baseline {
constexpr int kLanes = 2;
constexpr int kWide8 = 1, kWide4 = 2;
using Lanes = double __attribute__((vector_size(16)));
inline Lanes load(const double* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Lanes widen(const float* p) { return Lanes{static_cast<double>(p[0]), static_cast<double>(p[1])}; }
inline void store(double* p, Lanes v) { std::memcpy(p, &v, sizeof v); }
inline Lanes add_product(Lanes a, double x, Lanes w) { return a + x * w; }
#include "ops/linear/dot_rows.inc"
}  // namespace baseline

#if defined(__x86_64__)
// Everything between a pair of these is compiled for the named instruction set.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace avx2 {
constexpr int kLanes = 4;
constexpr int kWide8 = 1, kWide4 = 2;
using Lanes = __m256d;
inline Lanes load(const double* p) { return _mm256_loadu_pd(p); }
inline Lanes widen(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
inline void store(double* p, Lanes v) { _mm256_storeu_pd(p, v); }
inline Lanes add_product(Lanes a, double x, Lanes w) { return _mm256_fmadd_pd(_mm256_set1_pd(x), w, a); }
#include "ops/linear/dot_rows.inc"
}  // namespace avx2
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx2,fma")
#endif
namespace avx512 {
constexpr int kLanes = 8;
constexpr int kWide8 = 2, kWide4 = 4;
using Lanes = __m512d;
inline Lanes load(const double* p) { return _mm512_loadu_pd(p); }
inline Lanes widen(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
inline void store(double* p, Lanes v) { _mm512_storeu_pd(p, v); }
inline Lanes add_product(Lanes a, double x, Lanes w) { return _mm512_fmadd_pd(_mm512_set1_pd(x), w, a); }
#include "ops/linear/dot_rows.inc"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

template <class Out>
void dispatch(const DotRows& a, Out* out, std::int64_t out_stride) {
#if defined(__x86_64__)
  if (best_isa() == Isa::avx512) return avx512::run(a, out, out_stride);
  if (best_isa() == Isa::avx2) return avx2::run(a, out, out_stride);
#endif
  baseline::run(a, out, out_stride);
}

}  // namespace

void dot_rows(const DotRows& a, float* out, std::int64_t out_stride) { dispatch(a, out, out_stride); }
void dot_rows(const DotRows& a, double* out, std::int64_t out_stride) { dispatch(a, out, out_stride); }

}  // namespace plumb
