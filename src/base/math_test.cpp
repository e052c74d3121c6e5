#include "base/math.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "base/rng.h"

namespace plumb {
namespace {

constexpr int kSamples = 200000;

// |got - want| in units in the last place of `want` as a double; denormals count in the denormal grid.
double ulps(double got, long double want) {
  if (std::isinf(static_cast<double>(want)) || std::isinf(got)) return static_cast<double>(want) == got ? 0 : 1e9;
  const double size = std::abs(static_cast<double>(want));
  const double unit = std::max(std::nextafter(size, math::kInfinity) - size, 0x1p-1074);
  return static_cast<double>(std::abs(static_cast<long double>(got) - want) / static_cast<long double>(unit));
}

TEST(Math, ExpIsWithinOneUlp) {
  Rng rng{1};
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = i % 2 == 0 ? -745.0 + 1455.0 * rng.uniform() : 40.0 * (rng.uniform() - 0.5);
    worst = std::max(worst, ulps(math::exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 1.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Math, ExpAtTheEdges) {
  EXPECT_EQ(math::exp(0.0), 1.0);
  EXPECT_EQ(math::exp(-0.0), 1.0);
  EXPECT_EQ(math::exp(-math::kInfinity), 0.0);
  EXPECT_EQ(math::exp(math::kInfinity), math::kInfinity);
  EXPECT_EQ(math::exp(710.0), math::kInfinity);
  EXPECT_EQ(math::exp(-1e300), 0.0);
  EXPECT_EQ(math::exp(-746.0), 0.0);
  EXPECT_LT(math::exp(709.78), math::kInfinity);
  EXPECT_GT(math::exp(-745.0), 0.0);
  EXPECT_EQ(math::exp(0x1p-1074), 1.0);
  EXPECT_TRUE(std::isnan(math::exp(math::kNan)));
}

TEST(Math, LogIsWithinOneUlp) {
  Rng rng{2};
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double any = std::bit_cast<double>(rng.next() >> 1);  // every positive exponent, denormals too
    const double x = i % 2 == 0 ? 0.5 + 1.5 * rng.uniform() : std::isfinite(any) ? any : 3.0;
    worst = std::max(worst, ulps(math::log(x), std::log(static_cast<long double>(x))));
  }
  for (int i = 1; i < 1000; ++i)
    for (const double x : {1.0 + i * 0x1p-52, 1.0 - i * 0x1p-53, i * 0x1p-1074})
      worst = std::max(worst, ulps(math::log(x), std::log(static_cast<long double>(x))));
  EXPECT_LE(worst, 1.0);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(Math, LogAtTheEdges) {
  EXPECT_EQ(math::log(1.0), 0.0);
  EXPECT_EQ(math::log(0.0), -math::kInfinity);
  EXPECT_EQ(math::log(-0.0), -math::kInfinity);
  EXPECT_EQ(math::log(math::kInfinity), math::kInfinity);
  EXPECT_TRUE(std::isnan(math::log(-1.0)));
  EXPECT_TRUE(std::isnan(math::log(-math::kInfinity)));
  EXPECT_TRUE(std::isnan(math::log(math::kNan)));
}

TEST(Math, Log1pIsWithinTwoUlps) {
  Rng rng{3};
  double worst = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double magnitude = std::ldexp(1.0 + rng.uniform(), static_cast<int>(rng.between(-100, 60)));
    const double x = i % 2 == 0 ? magnitude : magnitude < 1.0 ? -magnitude : rng.uniform() - 1.0;
    worst = std::max(worst, ulps(math::log1p(x), std::log1p(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_EQ(math::log1p(0.0), 0.0);
  EXPECT_EQ(math::log1p(-1.0), -math::kInfinity);
  EXPECT_EQ(math::log1p(math::kInfinity), math::kInfinity);
  EXPECT_EQ(math::log1p(0x1p-1074), 0x1p-1074);
  EXPECT_TRUE(std::isnan(math::log1p(-1.5)));
  EXPECT_TRUE(std::isnan(math::log1p(math::kNan)));
}

TEST(Math, SigmoidSiluSoftplus) {
  Rng rng{4};
  for (int i = 0; i < kSamples; ++i) {
    const double x = 1400.0 * (rng.uniform() - 0.5) * rng.uniform();
    const long double e = std::exp(-static_cast<long double>(x));
    EXPECT_LE(ulps(math::sigmoid(x), 1.0L / (1.0L + e)), 3.0) << x;
    EXPECT_LE(ulps(math::silu(x), static_cast<long double>(x) / (1.0L + e)), 3.0) << x;
    const long double softplus = x > 20.0 ? static_cast<long double>(x) : std::log1p(1.0L / e);
    EXPECT_LE(ulps(math::softplus(x), softplus), 3.0) << x;
  }
  EXPECT_EQ(math::softplus(20.5), 20.5);
  EXPECT_NE(math::softplus(19.5), 19.5);
  EXPECT_EQ(math::softplus(1e308), 1e308);
  EXPECT_EQ(math::sigmoid(-math::kInfinity), 0.0);
  EXPECT_EQ(math::sigmoid(-720.0), 0.0);
  EXPECT_EQ(math::sigmoid(math::kInfinity), 1.0);
}

// |got - want| in units in the last place of `want` as a float; denormals count in the denormal grid.
double ulps32(float got, double want) {
  const float size = static_cast<float>(std::abs(want));
  if (std::isinf(size) || std::isinf(got)) return std::copysign(size, want) == got ? 0 : 1e9;
  const double unit = std::max<double>(std::nextafter(size, std::numeric_limits<float>::infinity()) - size, 0x1p-149f);
  return std::abs(got - want) / unit;
}

TEST(Math, Exp32Sigmoid32AndSilu32AreWithinTheirUlpsAndFallBothWays) {
  Rng rng{7};
  double worst_exp = 0, worst_sigmoid = 0, worst_silu = 0, up = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double span = i % 2 == 0 ? 10.0 : 192.0;
    const float x = static_cast<float>(span * (rng.uniform() - 0.5) - (i % 2 == 0 ? 0.0 : 8.0));
    const double e = std::exp(static_cast<double>(x)), inverse = std::exp(-static_cast<double>(x));
    worst_exp = std::max(worst_exp, ulps32(math::exp32(x), e));
    up += math::exp32(x) > e;
    if (x < -87.0f) continue;
    worst_sigmoid = std::max(worst_sigmoid, ulps32(math::sigmoid32(x), 1.0 / (1.0 + inverse)));
    worst_silu = std::max(worst_silu, ulps32(math::silu32(x), x / (1.0 + inverse)));
  }
  EXPECT_LE(worst_exp, 2.0);
  EXPECT_LE(worst_sigmoid, 3.0);
  EXPECT_LE(worst_silu, 3.0);
  EXPECT_NEAR(up / kSamples, 0.5, 0.05);
}

TEST(Math, Exp32AtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::exp32(0.0f), 1.0f);
  EXPECT_EQ(math::exp32(-0.0f), 1.0f);
  EXPECT_EQ(math::exp32(-inf), 0.0f);
  EXPECT_EQ(math::exp32(inf), inf);
  EXPECT_EQ(math::exp32(88.8f), inf);
  EXPECT_LT(math::exp32(88.7f), inf);
  EXPECT_EQ(math::exp32(-1e30f), 0.0f);
  EXPECT_EQ(math::exp32(-104.5f), 0.0f);
  EXPECT_GT(math::exp32(-103.0f), 0.0f);
  EXPECT_TRUE(std::isnan(math::exp32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(math::sigmoid32(-inf), 0.0f);
  EXPECT_EQ(math::sigmoid32(inf), 1.0f);
  EXPECT_EQ(math::silu32(-100.0f), -0.0f);
}

TEST(Math, SinCosAreGoodToAMillionRadians) {
  Rng rng{5};
  double worst = 0;
  const auto check = [&](double x) {
    const math::SinCos got = math::sin_cos(x);
    const auto exact = static_cast<long double>(x);
    worst = std::max({worst, std::abs(static_cast<double>(static_cast<long double>(got.sin) - std::sin(exact))),
                      std::abs(static_cast<double>(static_cast<long double>(got.cos) - std::cos(exact)))});
  };
  for (int i = 0; i < kSamples; ++i) check((i % 2 == 0 ? 0x1p20 : 10.0) * (2.0 * rng.uniform() - 1.0));
  for (int i = 0; i < 1000; ++i) check(1.0 * i), check(1048576.0 - i), check(i * 0x1.921fb54442d18p0);
  EXPECT_LE(worst, 2e-16);
  RecordProperty("worst_abs", std::to_string(worst * 1e16) + "e-16");
  EXPECT_EQ(math::sin_cos(0.0).cos, 1.0);
  EXPECT_EQ(math::sin_cos(0.0).sin, 0.0);
}

TEST(Math, ExpAllHasTheBitsOfExpOnEveryInstructionSet) {
  Rng rng{6};
  std::vector<double> x{0.0, -0.0, math::kInfinity, -math::kInfinity, 709.9, -745.1, -760.0, 1e-310};
  for (int i = 0; i < 1003; ++i) x.push_back(800.0 * (2.0 * rng.uniform() - 1.0) * rng.uniform());
  std::vector<double> want;
  for (const double value : x) want.push_back(math::exp(value));
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    std::vector<double> got = x;
    math::exp_all(got);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(double)), 0) << static_cast<int>(isa);
  }
  force_isa(before);
}

}  // namespace
}  // namespace plumb
