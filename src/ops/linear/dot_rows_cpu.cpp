#include "ops/linear/dot_rows_cpu.h"

#include <cmath>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plumb {
namespace {

namespace baseline {
// In the order of the weights' memory: the chains wait in `out`.
void run(const DotRows& a, float* out, std::int64_t out_stride, const std::int64_t* row_index) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    float* sums = out + r * out_stride;
    for (std::int64_t o = 0; o < a.out; ++o) sums[o] = 0.0f;
    for (std::int64_t k = 0; k < a.in; ++k) {
      const float x = a.x[(row_index == nullptr ? r : row_index[r]) * a.x_stride + k];
      const float* w = a.w + k * a.w_stride;
      for (std::int64_t o = 0; o < a.out; ++o) sums[o] = std::fma(x, w[o], sums[o]);
    }
  }
}
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
constexpr int kLanes = 8;
constexpr int kWide8 = 1, kWide4 = 2, kWide2 = 4, kWide1 = 8;
using Lanes = __m256;
using Part = __m256i;
inline Part part_of(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Lanes load(const float* p) { return _mm256_loadu_ps(p); }
inline Lanes load(const float* p, Part part) { return _mm256_maskload_ps(p, part); }
inline void store(float* p, Lanes v) { _mm256_storeu_ps(p, v); }
inline void store(float* p, Lanes v, Part part) { _mm256_maskstore_ps(p, part, v); }
inline Lanes add_product(Lanes a, float x, Lanes w) { return _mm256_fmadd_ps(_mm256_set1_ps(x), w, a); }
#include "ops/linear/dot_rows_cpu.inc"
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
constexpr int kLanes = 16;
constexpr int kWide8 = 2, kWide4 = 4, kWide2 = 8, kWide1 = 16;
using Lanes = __m512;
using Part = __mmask16;
inline Part part_of(std::int64_t count) { return static_cast<Part>((1u << count) - 1u); }
inline Lanes load(const float* p) { return _mm512_loadu_ps(p); }
inline Lanes load(const float* p, Part part) { return _mm512_maskz_loadu_ps(part, p); }
inline void store(float* p, Lanes v) { _mm512_storeu_ps(p, v); }
inline void store(float* p, Lanes v, Part part) { _mm512_mask_storeu_ps(p, part, v); }
inline Lanes add_product(Lanes a, float x, Lanes w) { return _mm512_fmadd_ps(_mm512_set1_ps(x), w, a); }
#include "ops/linear/dot_rows_cpu.inc"
}  // namespace avx512
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

}  // namespace

void dot_rows_cpu(const DotRows& a, float* out, std::int64_t out_stride, const std::int64_t* row_index) {
#if defined(__x86_64__)
  if (best_isa() == Isa::avx512) return avx512::run(a, out, out_stride, row_index);
  if (best_isa() == Isa::avx2) return avx2::run(a, out, out_stride, row_index);
#endif
  baseline::run(a, out, out_stride, row_index);
}

}  // namespace plumb
