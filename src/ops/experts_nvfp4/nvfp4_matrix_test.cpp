#include "ops/experts_nvfp4/nvfp4_matrix.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/twin.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

std::vector<float> values_of(const Nvfp4Matrix& matrix, std::int64_t begin, std::int64_t end) {
  std::vector<float> values(static_cast<std::size_t>(matrix.in * (end - begin)));
  dequantise_nvfp4(matrix, begin, end, values.data());
  return values;
}

std::vector<float> weights_of_blocks(Rng& rng, std::int64_t in, std::int64_t out) {
  std::vector<float> w = random_floats(rng, in * out, 0.05);
  for (std::int64_t k = 0; k < in; ++k)
    for (std::int64_t o = 0; o < out; ++o)
      w[static_cast<std::size_t>(k * out + o)] *= std::ldexp(1.0f, static_cast<int>((k / 16 + o) % 5));
  return w;
}

struct Shape {
  std::int64_t in, out;
};
class Nvfp4MatrixShapes : public testing::TestWithParam<Shape> {};

// The codes taken apart as the format says: low nibble the even input, one E4M3 scale for 16 inputs of an output, one
// f32 for the matrix; each value the nearest of its block's grid.
TEST_P(Nvfp4MatrixShapes, CodesAndScalesAreThoseOfTheFormat) {
  const auto [in, out] = GetParam();
  Rng rng{181};
  const std::vector<float> w = weights_of_blocks(rng, in, out);
  const Nvfp4Matrix matrix = quantise_nvfp4({w.data(), {in, out}});
  const std::vector<float> got = values_of(matrix, 0, out);
  float largest = 0;
  for (const float value : w) largest = std::max(largest, std::abs(value));
  EXPECT_EQ(matrix.global, largest / 2688.0f);
  EXPECT_EQ(static_cast<std::int64_t>(matrix.codes.size()), (in + 1) / 2 * out);
  for (std::int64_t o = 0; o < out; ++o)
    for (std::int64_t k = 0; k < in; ++k) {
      float amax = 0;
      for (std::int64_t i = k / 16 * 16; i < std::min(k / 16 * 16 + 16, in); ++i)
        amax = std::max(amax, std::abs(w[i * out + o]));
      const std::uint8_t scale = matrix.scales[static_cast<std::size_t>(k / 16 * out + o)];
      ASSERT_EQ(scale, f32_to_e4m3(amax / 6.0f / matrix.global));
      const std::uint8_t byte = matrix.codes[static_cast<std::size_t>(k / 2 * out + o)];
      const std::uint8_t code = k % 2 == 0 ? byte & 15 : byte >> 4;
      const double step = static_cast<double>(e4m3_to_f32(scale)) * matrix.global;
      ASSERT_EQ(got[k * out + o], static_cast<float>(e2m1_to_f32(code) * step)) << k << ' ' << o;
      double best = std::numeric_limits<double>::infinity();
      for (std::uint8_t other = 0; other < 16; ++other)
        best = std::min(best, std::abs(e2m1_to_f32(other) * step - w[k * out + o]));
      ASSERT_LE(std::abs(got[k * out + o] - w[k * out + o]), best + 1e-6 * std::abs(w[k * out + o])) << k << ' ' << o;
    }
}

TEST_P(Nvfp4MatrixShapes, AnyColumnsOnAnyInstructionSetHaveTheSameBits) {
  const auto [in, out] = GetParam();
  Rng rng{182};
  const std::vector<float> w = weights_of_blocks(rng, in, out);
  const Nvfp4Matrix matrix = quantise_nvfp4({w.data(), {in, out}});
  const std::vector<float> whole = values_of(matrix, 0, out);
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    for (std::int64_t begin = 0; begin < out; begin += 21) {
      const std::int64_t end = std::min<std::int64_t>(begin + 21, out);
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
INSTANTIATE_TEST_SUITE_P(Shapes, Nvfp4MatrixShapes,
                         testing::Values(Shape{1, 1}, Shape{16, 16}, Shape{64, 256}, Shape{33, 50}, Shape{7, 9}));

TEST(Nvfp4Matrix, ZerosAreZeroAndABlockThatIsNotFiniteIsNot) {
  const std::vector<float> zeros(40, 0.0f);
  EXPECT_EQ(values_of(quantise_nvfp4({zeros.data(), {20, 2}}), 0, 2), zeros);
  std::vector<float> w(40, 1.0f);
  w[2 * 18] = std::numeric_limits<float>::infinity(), w[2 * 3 + 1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> got = values_of(quantise_nvfp4({w.data(), {20, 2}}), 0, 2);
  for (std::size_t k = 0; k < 20; ++k) {
    EXPECT_EQ(std::isnan(got[2 * k]), k >= 16) << k;
    EXPECT_EQ(std::isnan(got[2 * k + 1]), k < 16) << k;
  }
}

}  // namespace
}  // namespace plumb
