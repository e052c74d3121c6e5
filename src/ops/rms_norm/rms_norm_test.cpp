#include "ops/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include "ops/twin.h"

namespace plumb {
namespace {

TEST(RmsNorm, IsTheFormulaWhateverTheRowTile) {
  constexpr std::int64_t kRows = 19, kWidth = 45;
  Rng rng{21};
  const std::vector<float> x = random_floats(rng, kRows * kWidth, 3.0), weight = random_floats(rng, kWidth);
  for (const bool weighted : {true, false}) {
    Guarded<float> out(kRows * kWidth), single(kRows * kWidth);
    const View<const float, 1> w = weighted ? View<const float, 1>(weight.data(), {kWidth}) : View<const float, 1>();
    rms_norm_ref({.x = {x.data(), {kRows, kWidth}}, .weight = w, .eps = 1e-6, .out = {out.data(), {kRows, kWidth}}});
    for (std::int64_t t = 0; t < kRows; ++t) {
      rms_norm_ref({.x = {x.data() + t * kWidth, {1, kWidth}},
                    .weight = w,
                    .eps = 1e-6,
                    .out = {single.data() + t * kWidth, {1, kWidth}}});
      long double sum = 0;
      for (std::int64_t c = 0; c < kWidth; ++c) sum += static_cast<long double>(x[t * kWidth + c]) * x[t * kWidth + c];
      for (std::int64_t c = 0; c < kWidth; ++c) {
        const long double want = x[t * kWidth + c] / std::sqrt(sum / kWidth + 1e-6L) * (weighted ? weight[c] : 1.0f);
        EXPECT_NEAR(out.values()[t * kWidth + c], static_cast<double>(want),
                    1e-6 * std::abs(static_cast<double>(want)));
      }
    }
    EXPECT_EQ(std::memcmp(out.data(), single.data(), kRows * kWidth * sizeof(float)), 0);
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST(RmsNorm, ZerosStayZeros) {
  std::vector<float> x(8, 0.0f);
  rms_norm_ref({.x = {x.data(), {1, 8}}, .weight = {}, .eps = 1e-6, .out = {x.data(), {1, 8}}});
  for (const float value : x) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace plumb
