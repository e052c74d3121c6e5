#pragma once

// Kernels of backend cpu are written once, against 16 logical lanes of f32, and compiled once for each instruction set:
//
//   namespace plumb {
//   namespace {
//   #define PLUMB_KERNELS "ops/rms_norm/rms_norm_cpu.inc"   // the kernels, in terms of F16 and its functions
//   #include "base/lanes/each_isa.inc"                      // namespaces baseline, avx2, avx512 with the kernels
//   }
//   void rms_norm_cpu(const RmsNorm& a) { PLUMB_ON_BEST_ISA(rms_norm(a)); }
//
// F16 is one register of AVX-512, two of AVX2, an array elsewhere. Every operation on it is exact or correctly rounded
// and the lanes are the same everywhere, so the bits are too.

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

/// The last statement of a function: returns `call` of the best namespace.
#define PLUMB_ON_BEST_ISA(call)  \
  switch (::plumb::best_isa()) { \
    case ::plumb::Isa::avx512:   \
      return avx512::call;       \
    case ::plumb::Isa::avx2:     \
      return avx2::call;         \
    case ::plumb::Isa::baseline: \
      break;                     \
  }                              \
  return baseline::call
#else
#define PLUMB_ON_BEST_ISA(call) return baseline::call
#endif

#define PLUMB_INLINE [[gnu::always_inline]] inline
