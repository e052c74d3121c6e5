#include "ops/router/router.h"

#include <cmath>

#include <gtest/gtest.h>

#include "ops/twin.h"

namespace plumb {
namespace {

TEST(Router, BiasDecidesTheSelectionAndTheLowerIdWinsTies) {
  const std::vector<float> logits{1, 2, 3, 0, /**/ 1, 1, 1, 1};
  const std::vector<float> bias{5, 0, 0, 0};
  std::vector<std::int32_t> experts(4);
  select_experts_ref(
      {.logits = {logits.data(), {2, 4}}, .bias = {bias.data(), {4}}, .experts = {experts.data(), {2, 2}}});
  EXPECT_EQ(experts, (std::vector<std::int32_t>{0, 2, 0, 1}));
}

TEST(Router, HashLayersFollowTheTableOfTheToken) {
  const std::vector<std::int64_t> table{0, 1, 7, 3, 5, 2};
  const std::vector<std::int32_t> tokens{2, 1};
  std::vector<std::int32_t> experts(4);
  hash_experts_ref({.tokens = tokens, .table = {table.data(), {3, 2}}, .experts = {experts.data(), {2, 2}}});
  EXPECT_EQ(experts, (std::vector<std::int32_t>{5, 2, 7, 3}));
}

TEST(Router, WeightsAreNormalisedScoresTimesTheScaling) {
  Rng rng{101};
  const std::vector<float> logits = random_floats(rng, 3 * 8, 15.0);
  const std::vector<std::int32_t> experts{7, 0, 3, 1, 2, 3};
  Guarded<float> weights(6);
  expert_weights_ref({.logits = {logits.data(), {3, 8}},
                      .experts = {experts.data(), {3, 2}},
                      .scaling = 1.5,
                      .weights = {weights.data(), {3, 2}}});
  for (std::int64_t t = 0; t < 3; ++t) {
    const auto score = [&](std::int64_t i) {
      const double l = logits[t * 8 + experts[t * 2 + i]];
      return std::sqrt(l > 20 ? l : std::log1p(std::exp(l)));
    };
    for (std::int64_t i = 0; i < 2; ++i)
      EXPECT_NEAR(weights.values()[t * 2 + i], 1.5 * score(i) / (score(0) + score(1)), 2e-7);
  }
  EXPECT_TRUE(weights.guards_intact());
}

}  // namespace
}  // namespace plumb
