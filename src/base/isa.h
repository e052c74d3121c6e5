#pragma once

namespace plumb {

/// Instruction sets that hot loops are compiled for. The choice changes speed, never a bit of the result.
enum class Isa { baseline, avx2, avx512 };

/// The best set this processor has, asked once; or the one that force_isa named.
Isa best_isa();

/// True when this processor can run code for `isa`.
bool has_isa(Isa isa);

/// Makes best_isa() answer `isa`, which must be available. For tests of bit equality, while no other thread computes.
void force_isa(Isa isa);

}  // namespace plumb

// One body, one function for each set: the body is always_inline and the compiler vectorises it anew in each.
#if defined(__x86_64__)
#define PLUMB_TARGET_AVX2 [[gnu::target("avx2,fma")]]
#define PLUMB_TARGET_AVX512 [[gnu::target("avx512f,avx512vl,avx512dq,avx2,fma")]]
#else
#define PLUMB_TARGET_AVX2
#define PLUMB_TARGET_AVX512
#endif
