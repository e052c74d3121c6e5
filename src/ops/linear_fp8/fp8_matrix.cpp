#include "ops/linear_fp8/fp8_matrix.h"

#include <algorithm>

#include "base/isa.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

constexpr float kLeastActivation = 1e-4f;

std::int64_t blocks_of(std::int64_t count) { return (count + kFp8Block - 1) / kFp8Block; }

void quantise_block(View<const float, 2> weight, std::int64_t k0, std::int64_t o0, Fp8Matrix& to) {
  const std::int64_t k1 = std::min(k0 + kFp8Block, to.in), o1 = std::min(o0 + kFp8Block, to.out);
  float amax = 0.0f;
  for (std::int64_t k = k0; k < k1; ++k)
    amax = std::max(amax, finite_amax({weight.row(k) + o0, static_cast<std::size_t>(o1 - o0)}));
  const std::uint8_t scale = e8m0_ceil(amax / kE4m3Max);
  to.scales[static_cast<std::size_t>(k0 / kFp8Block * blocks_of(to.out) + o0 / kFp8Block)] = scale;
  for (std::int64_t k = k0; k < k1; ++k)
    for (std::int64_t o = o0; o < o1; ++o)
      to.codes[static_cast<std::size_t>(k * to.out + o)] = f32_to_e4m3(weight(k, o) / e8m0_to_f32(scale));
}

// A part of one block: `rows` rows of `count` codes, `stride` apart, to rows of out `out_stride` apart.
struct CodeRegion {
  const std::uint8_t* codes;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t count;
  float scale;
  float* out;
  std::int64_t out_stride;
};
[[gnu::always_inline]] inline void scale_codes_body(const CodeRegion& a) {
  for (std::int64_t k = 0; k < a.rows; ++k) {
    const std::uint8_t* codes = a.codes + k * a.stride;
    float* out = a.out + k * a.out_stride;
    for (std::int64_t i = 0; i < a.count; ++i) out[i] = e4m3_to_f32(codes[i]) * a.scale;
  }
}
void scale_codes_baseline(const CodeRegion& a) { scale_codes_body(a); }
PLUMB_TARGET_AVX2 void scale_codes_avx2(const CodeRegion& a) { scale_codes_body(a); }
PLUMB_TARGET_AVX512 void scale_codes_avx512(const CodeRegion& a) { scale_codes_body(a); }

}  // namespace

Fp8Matrix quantise_fp8(View<const float, 2> weight) {
  Fp8Matrix matrix{.in = weight.extent(0), .out = weight.extent(1), .codes = {}, .scales = {}};
  matrix.codes.resize(static_cast<std::size_t>(matrix.in * matrix.out));
  matrix.scales.resize(static_cast<std::size_t>(blocks_of(matrix.in) * blocks_of(matrix.out)));
  for (std::int64_t k = 0; k < matrix.in; k += kFp8Block)
    for (std::int64_t o = 0; o < matrix.out; o += kFp8Block) quantise_block(weight, k, o, matrix);
  return matrix;
}

void dequantise_fp8(const Fp8Matrix& matrix, std::int64_t begin, std::int64_t end, float* out) {
  CHECK(0 <= begin && begin <= end && end <= matrix.out);
  const Isa isa = best_isa();
  const auto scale_codes = isa == Isa::avx512 ? &scale_codes_avx512
                           : isa == Isa::avx2 ? &scale_codes_avx2
                                              : &scale_codes_baseline;
  for (std::int64_t k = 0; k < matrix.in; k += kFp8Block)
    for (std::int64_t o = begin, next; o < end; o = next) {
      next = std::min((o / kFp8Block + 1) * kFp8Block, end);
      const std::int64_t block = k / kFp8Block * blocks_of(matrix.out) + o / kFp8Block;
      scale_codes({.codes = matrix.codes.data() + k * matrix.out + o,
                   .stride = matrix.out,
                   .rows = std::min(kFp8Block, matrix.in - k),
                   .count = next - o,
                   .scale = e8m0_to_f32(matrix.scales[static_cast<std::size_t>(block)]),
                   .out = out + k * (end - begin) + o - begin,
                   .out_stride = end - begin});
    }
}

void round_activations_fp8(View<const float, 2> x, float* out) {
  const std::int64_t width = x.extent(1);
  for (std::int64_t t = 0; t < x.extent(0); ++t)
    for (std::int64_t begin = 0; begin < width; begin += kFp8Block) {
      const std::int64_t count = std::min(kFp8Block, width - begin);
      const float* from = x.row(t) + begin;
      const float amax = std::max(finite_amax({from, static_cast<std::size_t>(count)}), kLeastActivation);
      const float scale = e8m0_to_f32(e8m0_ceil(amax / kE4m3Max));
      for (std::int64_t i = 0; i < count; ++i)
        out[t * width + begin + i] = e4m3_to_f32(f32_to_e4m3(from[i] / scale)) * scale;
    }
}

}  // namespace plumb
