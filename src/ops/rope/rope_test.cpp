#include "ops/rope/rope.h"

#include <cmath>

#include <gtest/gtest.h>

#include "ops/twin.h"

namespace plumb {
namespace {

// The specification prints 2.96976778e-4 for i = 20; its own formula gives the value here.
TEST(RopeFrequencies, HaveTheSpotValuesOfTheSpecification) {
  const std::vector<double> f = rope_frequencies({.dim = 64,
                                                  .theta = 160000.0,
                                                  .factor = 16.0,
                                                  .original_max_positions = 65536.0,
                                                  .beta_fast = 32.0,
                                                  .beta_slow = 1.0});
  ASSERT_EQ(f.size(), 32u);
  const std::pair<std::size_t, double> spots[] = {{14, 5.28685632e-3}, {15, 3.63553858e-3}, {16, 2.265625e-3},
                                                  {20, 2.96977778e-4}, {24, 1.953125e-5},   {25, 5.37231267e-6},
                                                  {31, 5.68052904e-7}};
  for (const auto& [i, want] : spots) EXPECT_NEAR(f[i], want, 1e-8 * want) << i;
}

TEST(RopeFrequencies, WithoutYarnArePowersOfTheBase) {
  const std::vector<double> f = rope_frequencies(
      {.dim = 32, .theta = 10000.0, .factor = 1.0, .original_max_positions = 0, .beta_fast = 32, .beta_slow = 1});
  for (std::size_t i = 0; i < f.size(); ++i)
    EXPECT_NEAR(f[i], std::pow(10000.0, -2.0 * static_cast<double>(i) / 32.0), 1e-15);
}

TEST(Rope, RotatesInterleavedPairsOfTheLastChannelsOnly) {
  constexpr std::int64_t kRows = 5, kHeads = 3, kDim = 12, kHalf = 2;
  const double frequencies[kHalf] = {1.0, 0.01};
  Rng rng{31};
  const std::vector<float> before = random_floats(rng, kRows * kHeads * kDim);
  std::vector<float> x = before;
  std::vector<double> table(kRows * kHalf * 2);
  const View<double, 3> angles(table.data(), {kRows, kHalf, 2});
  rope_table_ref({.first = 100, .step = 7, .frequencies = frequencies, .table = angles});
  const View<float, 3> view(x.data(), {kRows, kHeads, kDim});
  rope_ref({.x = view, .table = angles, .inverse = false});
  const View<const float, 3> old(before.data(), {kRows, kHeads, kDim});
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t c = 0; c < kDim - 2 * kHalf; ++c) EXPECT_EQ(view(t, h, c), old(t, h, c));
      for (std::int64_t i = 0; i < kHalf; ++i) {
        const double angle = static_cast<double>(100 + 7 * t) * frequencies[i], c = std::cos(angle),
                     s = std::sin(angle);
        const std::int64_t at = kDim - 2 * kHalf + 2 * i;
        EXPECT_NEAR(view(t, h, at), old(t, h, at) * c - old(t, h, at + 1) * s, 1e-6);
        EXPECT_NEAR(view(t, h, at + 1), old(t, h, at) * s + old(t, h, at + 1) * c, 1e-6);
      }
    }
  rope_ref({.x = view, .table = angles, .inverse = true});
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], before[i], 1e-6);
}

}  // namespace
}  // namespace plumb
