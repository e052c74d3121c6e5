#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "tensor/dtype.h"

namespace plumb {

// Number formats narrower than f32. All roundings are to the nearest value, ties to the even code.

/// The nearest bf16, as f32.
inline float round_to_bf16(float value) { return bf16_to_f32(f32_to_bf16(value)); }

/// FP8 E4M3 ("fn": 4 exponent bits, bias 7, no infinity): largest value.
inline constexpr float kE4m3Max = 448.0f;
/// FP4 E2M1: largest value. The magnitudes are 0, 0.5, 1, 1.5, 2, 3, 4, 6.
inline constexpr float kE2m1Max = 6.0f;

/// The code of the nearest E4M3; finite values beyond ±448 become ±448, NaN and infinities NaN (0x7f, 0xff), so that
/// damage stays visible.
inline std::uint8_t f32_to_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t size = bits & 0x7fffffffu;
  if (size >= 0x7f800000u) return sign | 0x7fu;
  // Below 2^-6 the grid is 2^-9: adding 1.5 * 2^23 rounds to a whole number of steps, found in the low bits.
  if (size < 0x3c800000u) {
    const float steps = std::bit_cast<float>(size) * 512.0f + 0x1.8p23f;
    return sign | static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(steps) & 0xfu);
  }
  if (size >= 0x43e80000u) return sign | 0x7eu;  // 464 and above
  const std::uint32_t rounded = size + 0x7ffffu + ((size >> 20) & 1u);
  const std::uint32_t code = (rounded >> 20) - (120u << 3);
  return sign | static_cast<std::uint8_t>(code);
}

/// The value of an E4M3 code, exact.
inline float e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t size = code & 0x7fu;
  // As the bits of an f32 whose exponent is 120 too small; the product is exact, subnormal codes included. Neither
  // branch nor comparison, so that loops over codes are vectorised: the carry of 0x7f + 1 alone reaches bit 7.
  const float scaled = std::bit_cast<float>(size << 20) * 0x1p120f;
  const std::uint32_t nan = (0u - ((size + 1u) >> 7)) & 0x7fc00000u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign | nan);
}

/// The code (0..15, bit 3 the sign) of the nearest E2M1; values beyond ±6 become ±6. E2M1 has no NaN: NaN becomes ±6,
/// and a block that holds one has a NaN scale.
inline std::uint8_t f32_to_e2m1(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float size = std::bit_cast<float>(bits & 0x7fffffffu);
  const auto sign = static_cast<std::uint8_t>((bits >> 28) & 8u);
  // A tie goes to the even code: up at 0.75, 1.75 and 3.5, down at the others.
  const int code = static_cast<int>(!(size <= 0.25f)) + static_cast<int>(!(size < 0.75f)) +
                   static_cast<int>(!(size <= 1.25f)) + static_cast<int>(!(size < 1.75f)) +
                   static_cast<int>(!(size <= 2.5f)) + static_cast<int>(!(size < 3.5f)) +
                   static_cast<int>(!(size <= 5.0f));
  return sign | static_cast<std::uint8_t>(code);
}

/// The value of an E2M1 code; only the low four bits count.
inline float e2m1_to_f32(std::uint8_t code) {
  constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return kValues[code & 15u];
}

/// E8M0, a power of two as a byte: the code b of 2^(b - 127); 0xff is NaN.
inline float e8m0_to_f32(std::uint8_t code) {
  if (code == 0xffu) return std::numeric_limits<float>::quiet_NaN();
  if (code == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 23);
}

/// The E8M0 code of the smallest power of two that is not below `value` > 0, at least 2^-126 and at most 2^127, from
/// the bits: a logarithm would be off next to a power of two. NaN for NaN and infinity.
inline std::uint8_t e8m0_ceil(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t exponent = (bits >> 23) & 0xffu;
  if (exponent == 0xffu) return 0xffu;
  const std::uint32_t up = exponent + static_cast<std::uint32_t>((bits & 0x7fffffu) != 0);
  return static_cast<std::uint8_t>(up < 1u ? 1u : up > 254u ? 254u : up);
}

/// The largest finite magnitude of `values`, 0 when there is none.
inline float finite_amax(std::span<const float> values) {
  float amax = 0.0f;
  for (const float value : values) {
    const float size = std::abs(value);
    if (size > amax && size <= std::numeric_limits<float>::max()) amax = size;
  }
  return amax;
}

}  // namespace plumb
