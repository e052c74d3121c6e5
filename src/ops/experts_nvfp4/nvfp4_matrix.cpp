#include "ops/experts_nvfp4/nvfp4_matrix.h"

#include <algorithm>
#include <cmath>

#include "base/isa.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

std::int64_t blocks_of(std::int64_t in) { return (in + kNvfp4Block - 1) / kNvfp4Block; }

// One block of one output.
void quantise_block(View<const float, 2> weight, std::int64_t k0, std::int64_t o, Nvfp4Matrix& to) {
  const std::int64_t k1 = std::min(k0 + kNvfp4Block, to.in);
  float amax = 0.0f;
  bool finite = true;
  for (std::int64_t k = k0; k < k1; ++k) {
    finite &= std::isfinite(weight(k, o));
    amax = std::max(amax, std::abs(weight(k, o)));
  }
  const std::uint8_t scale = finite ? f32_to_e4m3(amax / kE2m1Max / to.global) : f32_to_e4m3(std::nanf(""));
  to.scales[static_cast<std::size_t>(k0 / kNvfp4Block * to.out + o)] = scale;
  const float step = e4m3_to_f32(scale) * to.global;
  if (!(step > 0.0f)) return;  // all codes are zero already
  for (std::int64_t k = k0; k < k1; ++k)
    to.codes[static_cast<std::size_t>(k / 2 * to.out + o)] |=
        static_cast<std::uint8_t>(f32_to_e2m1(weight(k, o) / step) << (k % 2 * 4));
}

// The value of a code (0..15) by its bits: 2 * e2m1 is 0, 1, 2, 3, 4, 6, 8, 12 for codes 0 to 7.
[[gnu::always_inline]] inline float value_of(std::uint32_t code) {
  const std::uint32_t size = code & 7u, exponent = size >> 1, mantissa = size & 1u;
  const std::uint32_t twice = exponent == 0 ? mantissa : (2u + mantissa) << (exponent - 1u);
  const float value = static_cast<float>(static_cast<std::int32_t>(twice)) * 0.5f;
  return (code & 8u) != 0 ? -value : value;
}

// One input of `count` outputs.
[[gnu::always_inline]] inline void scale_codes_body(const std::uint8_t* codes, int shift, const float* scales,
                                                    float global, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = value_of(static_cast<std::uint32_t>(codes[i] >> shift) & 15u) * scales[i] * global;
}
void scale_codes_baseline(const std::uint8_t* codes, int shift, const float* scales, float global, std::int64_t count,
                          float* out) {
  scale_codes_body(codes, shift, scales, global, count, out);
}
PLUMB_TARGET_AVX2 void scale_codes_avx2(const std::uint8_t* codes, int shift, const float* scales, float global,
                                        std::int64_t count, float* out) {
  scale_codes_body(codes, shift, scales, global, count, out);
}
PLUMB_TARGET_AVX512 void scale_codes_avx512(const std::uint8_t* codes, int shift, const float* scales, float global,
                                            std::int64_t count, float* out) {
  scale_codes_body(codes, shift, scales, global, count, out);
}

}  // namespace

Nvfp4Matrix quantise_nvfp4(View<const float, 2> weight) {
  Nvfp4Matrix matrix{.in = weight.extent(0), .out = weight.extent(1), .codes = {}, .scales = {}, .global = 1.0f};
  matrix.codes.assign(static_cast<std::size_t>((matrix.in + 1) / 2 * matrix.out), 0);
  matrix.scales.resize(static_cast<std::size_t>(blocks_of(matrix.in) * matrix.out));
  const float global = finite_amax(weight.span()) / (kE2m1Max * kE4m3Max);
  if (global > 0.0f) matrix.global = global;
  for (std::int64_t k = 0; k < matrix.in; k += kNvfp4Block)
    for (std::int64_t o = 0; o < matrix.out; ++o) quantise_block(weight, k, o, matrix);
  return matrix;
}

void dequantise_nvfp4(const Nvfp4Matrix& matrix, std::int64_t begin, std::int64_t end, float* out) {
  CHECK(0 <= begin && begin <= end && end <= matrix.out);
  const Isa isa = best_isa();
  const auto scale_codes = isa == Isa::avx512 ? &scale_codes_avx512
                           : isa == Isa::avx2 ? &scale_codes_avx2
                                              : &scale_codes_baseline;
  const std::int64_t count = end - begin;
  std::vector<float> scales(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < matrix.in; ++k) {
    if (k % kNvfp4Block == 0)
      for (std::int64_t i = 0; i < count; ++i)
        scales[static_cast<std::size_t>(i)] =
            e4m3_to_f32(matrix.scales[static_cast<std::size_t>(k / kNvfp4Block * matrix.out + begin + i)]);
    scale_codes(matrix.codes.data() + k / 2 * matrix.out + begin, static_cast<int>(k % 2 * 4), scales.data(),
                matrix.global, count, out + k * count);
  }
}

}  // namespace plumb
