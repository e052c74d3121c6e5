#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace plumb {

// Elementary functions of ours, in f64, made of +, -, *, /, comparisons and bit operations alone: compiled without
// contraction they give the same bits on every instruction set, vectorised or not, which no libm promises. Errors are
// stated in units in the last place and tested against long double. The formulas are the textbook ones: argument
// reduction and a truncated series.
namespace math {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, which is then in the low bits of the sum.
inline constexpr double kRound = 0x1.8p52;
// ln 2 in two parts; the first has 32 bits, so that its product with an exponent is exact.
inline constexpr double kLn2High = 0x1.62e42fee00000p-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

/// e^x, at most 1 ulp off (denormal results: 1 unit of the denormal grid); 0 for -inf, inf above 709.78, NaN for NaN.
[[gnu::always_inline]] inline double exp(double x) {
  // Outside this range the result is 0 or inf already; NaN fails both comparisons and stays.
  const double low = x < -746.0 ? -746.0 : x;
  const double c = low > 710.0 ? 710.0 : low;
  const double shifted = c * 0x1.71547652b82fep0 + kRound;
  const double n = shifted - kRound;
  const double r = (c - n * kLn2High) - n * kLn2Low;
  // (e^r - 1 - r) / r^2; with |r| <= 0.35 the first term left out is below 2^-57.
  double q = 1.0 / 6227020800.0;
  q = q * r + 1.0 / 479001600.0;
  q = q * r + 1.0 / 39916800.0;
  q = q * r + 1.0 / 3628800.0;
  q = q * r + 1.0 / 362880.0;
  q = q * r + 1.0 / 40320.0;
  q = q * r + 1.0 / 5040.0;
  q = q * r + 1.0 / 720.0;
  q = q * r + 1.0 / 120.0;
  q = q * r + 1.0 / 24.0;
  q = q * r + 1.0 / 6.0;
  q = q * r + 0.5;
  const double p = 1.0 + (r + r * r * q);
  // 2^n in two factors: n reaches -1077 and 1025, where one factor would not be a normal number. Shifts, and an offset
  // that keeps the halved number positive, because vector units lack the arithmetic shift of 64 bits.
  const std::uint64_t biased = std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(kRound) + 4096;
  const std::uint64_t half = biased >> 1;
  const double scale1 = std::bit_cast<double>((half - 2048 + 1023) << 52);
  const double scale2 = std::bit_cast<double>((biased - half - 2048 + 1023) << 52);
  return p * scale1 * scale2;
}

/// Natural logarithm, at most 1 ulp off; -inf for 0, NaN below.
[[gnu::always_inline]] inline double log(double x) {
  const bool tiny = x < 0x1.0p-1022;
  const double scaled = tiny ? x * 0x1.0p54 : x;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(scaled);
  // The exponent that leaves a mantissa m in [sqrt(1/2), sqrt(2)).
  const std::uint64_t above = bits - 0x3fe6a09e667f3bcdull + (std::uint64_t{2048} << 52);
  const std::uint64_t exponent = above >> 52;  // biased by 2048
  const double m = std::bit_cast<double>(bits - ((exponent - 2048) << 52));
  const double n =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(kRound) + exponent - 2048) - kRound - (tiny ? 54.0 : 0.0);
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  // log(1 + f) = 2 atanh(s) = f - s * (f - tail), tail = 2 (z/3 + z^2/5 + ...), with z <= 0.0295.
  double q = 2.0 / 23.0;
  q = q * z + 2.0 / 21.0;
  q = q * z + 2.0 / 19.0;
  q = q * z + 2.0 / 17.0;
  q = q * z + 2.0 / 15.0;
  q = q * z + 2.0 / 13.0;
  q = q * z + 2.0 / 11.0;
  q = q * z + 2.0 / 9.0;
  q = q * z + 2.0 / 7.0;
  q = q * z + 2.0 / 5.0;
  q = q * z + 2.0 / 3.0;
  const double result = n * kLn2High + (f - (s * (f - q * z) - n * kLn2Low));
  const double signed_result = x < 0.0 ? kNan : result;
  const double finite = x == 0.0 ? -kInfinity : signed_result;
  const double infinite = x == kInfinity ? kInfinity : finite;
  return x != x ? x : infinite;
}

/// log(1 + x), at most 2 ulp off; -inf for -1, NaN below.
[[gnu::always_inline]] inline double log1p(double x) {
  const double u = 1.0 + x;
  // What rounding 1 + x lost, to first order.
  const double lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x);
  const double result = log(u) + lost / u;
  const bool plain = u == 0.0 || u == kInfinity;
  return plain ? log(u) : result;
}

/// 1 / (1 + e^-x); 0 below -709.78, where it is less than 1e-308.
[[gnu::always_inline]] inline double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/// x / (1 + e^-x), -0 below -709.78.
[[gnu::always_inline]] inline double silu(double x) { return x / (1.0 + exp(-x)); }

/// log(1 + e^x), and x itself above 20, as torch has it.
[[gnu::always_inline]] inline double softplus(double x) { return x > 20.0 ? x : log1p(exp(x)); }

struct SinCos {
  double sin;
  double cos;
};

/// Sine and cosine for |x| <= 2^20 radians, absolute error below 2e-16.
[[gnu::always_inline]] inline SinCos sin_cos(double x) {
  // pi/2 in three parts; the first two have 32 bits, so that their products with a 20-bit integer are exact.
  constexpr double kPart1 = 0x1.921fb54400000p0;
  constexpr double kPart2 = 0x1.0b4611a600000p-34;
  constexpr double kPart3 = 0x1.3198a2e037073p-69;
  const double shifted = x * 0x1.45f306dc9c883p-1 + kRound;
  const double n = shifted - kRound;
  const double r = ((x - n * kPart1) - n * kPart2) - n * kPart3;
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(shifted);
  const double z = r * r;
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  const double sine = r + r * z * s;
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  const double cosine = 1.0 + z * c;
  const bool odd = (quadrant & 1) != 0;
  const double sin_size = odd ? cosine : sine;
  const double cos_size = odd ? sine : cosine;
  return {(quadrant & 2) != 0 ? -sin_size : sin_size, ((quadrant + 1) & 2) != 0 ? -cos_size : cos_size};
}

/// exp of every element, vectorised for this processor; the same bits as exp one by one.
void exp_all(std::span<double> values);

// The same functions in f32, for backend cpu. Names of their own: an f32 argument must not change what a reference
// computes.

/// e^x, at most 2 ulp off (denormal results: 1 unit of the denormal grid); 0 for -inf, inf above 88.72, NaN for NaN.
[[gnu::always_inline]] inline float exp32(float x) {
  constexpr float kRound32 = 0x1.8p23f;
  // ln 2 in two parts; the first has 15 bits, so that its product with an exponent is exact.
  constexpr float kHigh = 0x1.62e4p-1f, kLow = 0x1.7f7d1cp-20f;
  const float low = x < -104.0f ? -104.0f : x;
  const float c = low > 89.0f ? 89.0f : low;
  const float shifted = c * 0x1.715476p0f + kRound32;
  const float n = shifted - kRound32;
  const float r = (c - n * kHigh) - n * kLow;
  // (e^r - 1 - r) / r^2; with |r| <= 0.35 the first term left out is below 2^-27.
  float q = 1.0f / 5040.0f;
  q = q * r + 1.0f / 720.0f;
  q = q * r + 1.0f / 120.0f;
  q = q * r + 1.0f / 24.0f;
  q = q * r + 1.0f / 6.0f;
  q = q * r + 0.5f;
  const float p = 1.0f + (r + r * r * q);
  // 2^n in two factors, as in exp.
  const std::uint32_t biased = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound32) + 512;
  const std::uint32_t half = biased >> 1;
  const float scale1 = std::bit_cast<float>((half - 256 + 127) << 23);
  const float scale2 = std::bit_cast<float>((biased - half - 256 + 127) << 23);
  return p * scale1 * scale2;
}

/// 1 / (1 + e^-x), at most 3 ulp off; 0 below -88.72.
[[gnu::always_inline]] inline float sigmoid32(float x) { return 1.0f / (1.0f + exp32(-x)); }

/// x / (1 + e^-x), at most 3 ulp off; -0 below -88.72.
[[gnu::always_inline]] inline float silu32(float x) { return x / (1.0f + exp32(-x)); }

}  // namespace math
}  // namespace plumb
