#include "ops/linear_fp8/fp8_matrix.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/twin.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

std::vector<float> values_of(const Fp8Matrix& matrix, std::int64_t begin, std::int64_t end) {
  std::vector<float> values(static_cast<std::size_t>(matrix.in * (end - begin)));
  dequantise_fp8(matrix, begin, end, values.data());
  return values;
}

// Sizes that differ from block to block, so that a wrong block's scale shows.
std::vector<float> weights_of_blocks(Rng& rng, std::int64_t in, std::int64_t out) {
  std::vector<float> w = random_floats(rng, in * out);
  for (std::int64_t k = 0; k < in; ++k)
    for (std::int64_t o = 0; o < out; ++o)
      w[static_cast<std::size_t>(k * out + o)] *= std::ldexp(1.0f, static_cast<int>(k / 128 * 3 + o / 128 * 5) - 6);
  return w;
}

struct Shape {
  std::int64_t in, out;
};
class Fp8MatrixShapes : public testing::TestWithParam<Shape> {};

TEST_P(Fp8MatrixShapes, EveryValueIsTheNearestOfItsBlocksGrid) {
  const auto [in, out] = GetParam();
  Rng rng{171};
  const std::vector<float> w = weights_of_blocks(rng, in, out);
  const Fp8Matrix matrix = quantise_fp8({w.data(), {in, out}});
  const std::vector<float> got = values_of(matrix, 0, out);
  for (std::int64_t k0 = 0; k0 < in; k0 += 128)
    for (std::int64_t o0 = 0; o0 < out; o0 += 128) {
      float amax = 0;
      for (std::int64_t k = k0; k < std::min(k0 + 128, in); ++k)
        for (std::int64_t o = o0; o < std::min(o0 + 128, out); ++o) amax = std::max(amax, std::abs(w[k * out + o]));
      const double scale = std::exp2(std::ceil(std::log2(amax / 448.0)));
      for (std::int64_t k = k0; k < std::min(k0 + 128, in); ++k)
        for (std::int64_t o = o0; o < std::min(o0 + 128, out); ++o) {
          const double x = w[k * out + o] / scale, value = got[k * out + o] / scale;
          // Half a step of three mantissa bits, or of the subnormal grid.
          const double step = std::max(std::exp2(std::floor(std::log2(std::abs(x))) - 3), std::exp2(-9));
          ASSERT_LE(std::abs(value - x), step / 2) << k << ' ' << o;
          ASSERT_EQ(value, e4m3_to_f32(f32_to_e4m3(static_cast<float>(value)))) << k << ' ' << o;
        }
    }
}

TEST_P(Fp8MatrixShapes, AnyColumnsOnAnyInstructionSetHaveTheSameBits) {
  const auto [in, out] = GetParam();
  Rng rng{172};
  const std::vector<float> w = weights_of_blocks(rng, in, out);
  const Fp8Matrix matrix = quantise_fp8({w.data(), {in, out}});
  const std::vector<float> whole = values_of(matrix, 0, out);
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    for (std::int64_t begin = 0; begin < out; begin += 37) {
      const std::int64_t end = std::min<std::int64_t>(begin + 37, out);
      const std::vector<float> part = values_of(matrix, begin, end);
      for (std::int64_t k = 0; k < in; ++k)
        ASSERT_EQ(std::memcmp(part.data() + k * (end - begin), whole.data() + k * out + begin,
                              static_cast<std::size_t>(end - begin) * sizeof(float)),
                  0)
            << static_cast<int>(isa) << ' ' << begin << ' ' << k;
    }
  }
  force_isa(before);
}
INSTANTIATE_TEST_SUITE_P(Shapes, Fp8MatrixShapes,
                         testing::Values(Shape{1, 1}, Shape{128, 128}, Shape{130, 257}, Shape{9, 300}, Shape{300, 20}));

TEST(Fp8Matrix, ZerosAreZeroAndWhatIsNotFiniteStaysVisible) {
  std::vector<float> w(200 * 3, 0.0f);
  w[5] = std::numeric_limits<float>::infinity(), w[6] = 2.0f, w[590] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> got = values_of(quantise_fp8({w.data(), {200, 3}}), 0, 3);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (i == 5 || i == 590)
      EXPECT_TRUE(std::isnan(got[i])) << i;
    else
      EXPECT_EQ(got[i], w[i]) << i;
}

TEST(Fp8Activations, AreRoundedInGroupsOf128OfTheirRow) {
  constexpr std::int64_t kRows = 5, kWidth = 300;
  Rng rng{173};
  std::vector<float> x = random_floats(rng, kRows * kWidth);
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t c = 0; c < kWidth; ++c)
      x[static_cast<std::size_t>(t * kWidth + c)] *= std::ldexp(1.0f, static_cast<int>(4 * (c / 128) - t));
  std::fill_n(x.begin(), 128, 1e-9f);  // below the floor of the scale
  Guarded<float> out(kRows * kWidth);
  round_activations_fp8({x.data(), {kRows, kWidth}}, out.data());
  EXPECT_TRUE(out.guards_intact());
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t begin = 0; begin < kWidth; begin += 128) {
      const std::int64_t end = std::min<std::int64_t>(begin + 128, kWidth);
      double amax = 1e-4;
      for (std::int64_t c = begin; c < end; ++c) amax = std::max<double>(amax, std::abs(x[t * kWidth + c]));
      const auto scale = static_cast<float>(std::exp2(std::ceil(std::log2(amax / 448.0))));
      for (std::int64_t c = begin; c < end; ++c)
        EXPECT_EQ(out.values()[t * kWidth + c], e4m3_to_f32(f32_to_e4m3(x[t * kWidth + c] / scale)) * scale)
            << t << ' ' << c;
    }
}

}  // namespace
}  // namespace plumb
