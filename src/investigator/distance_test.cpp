#include "investigator/distance.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb::investigator {
namespace {

ScoreRecord scored(std::vector<double> values, std::string hash = "h") {
  ScoreRecord r{.item = {ScorePath::scored, CacheState::cold, 256, 0}};
  r.scores.status = Scores::Status::measured;
  r.scores.tokens_hash = std::move(hash);
  r.scores.log_probabilities = std::move(values);
  return r;
}

ScoreRecord generated(std::vector<GeneratedToken> tokens, CacheState state = CacheState::cold) {
  ScoreRecord r{.item = {ScorePath::generated, state, 256, 0}};
  r.scores.status = Scores::Status::measured;
  r.scores.generated = std::move(tokens);
  return r;
}

TEST(TextDistances, AreHalfTheMeanSquareChange) {
  const auto d = distances({scored({-1, -2, -3})}, {scored({-1, -2.5, -1})});
  ASSERT_EQ(d.size(), 1u);
  EXPECT_DOUBLE_EQ(d[0].d, (0.25 + 4) / 3 / 2);
  EXPECT_EQ(d[0].tokens, 3);
}

TEST(TextDistances, AreNoneWhereTokensOrStatusDiffer) {
  EXPECT_TRUE(distances({scored({-1, -2})}, {scored({-1, -2}, "other")}).empty());
  EXPECT_TRUE(distances({scored({-1, -2})}, {scored({-1, -2, -3})}).empty());
  EXPECT_TRUE(distances({}, {scored({-1, -2})}).empty());
  ScoreRecord none = scored({});
  none.scores.status = Scores::Status::not_offered;
  EXPECT_TRUE(distances({scored({-1})}, {none}).empty());
  EXPECT_TRUE(distances({none}, {scored({-1})}).empty());
}

TEST(TextDistances, OfGeneratedTextsFollowTheReferenceToTheFirstOtherToken) {
  const ScoreRecord reference = generated({{{"a", -0.1}, {}}, {{"b", -0.2}, {}}, {{"c", -0.3}, {}}});
  const ScoreRecord listed = generated({{{"a", -0.3}, {}}, {{"x", -0.1}, {{"x", -0.1}, {"b", -1.2}}}, {{"y", -9}, {}}});
  auto d = distances({reference}, {listed});
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].tokens, 2);
  EXPECT_EQ(d[0].outside_list, 0);
  EXPECT_NEAR(d[0].d, (0.04 + 1) / 2 / 2, 1e-12);
  // The reference's token is not listed: it is taken for the last one, and said so.
  const ScoreRecord outside = generated({{{"x", -0.1}, {{"x", -0.1}, {"z", -4.1}}}});
  d = distances({reference}, {outside});
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].outside_list, 1);
  EXPECT_NEAR(d[0].d, 16.0 / 2, 1e-12);
}

TEST(TextDistances, OfAPromptAskedColdAndAsAHitAreOneObservation) {
  const auto one = [](double value, CacheState state) { return generated({{{"a", value}, {}}}, state); };
  const auto prompts = by_prompt(distances({one(-1, CacheState::cold), one(-1, CacheState::hit)},
                                           {one(-1, CacheState::cold), one(-3, CacheState::hit)}));
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_DOUBLE_EQ(prompts[0].d, 2);
}

TEST(OverBudgetEValue, PassesAHundredRarelyWhenOneLooksAfterEveryPrompt) {
  constexpr int kRuns = 10'000;
  constexpr int kPrompts = 100;
  int passed = 0;
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    Rng rng(derive_seed(run, "budget"));
    int above = 0;
    for (int n = 1; n <= kPrompts; ++n) {
      above += rng.uniform() < 0.01 ? 1 : 0;
      if (over_budget_e_value(above, n) < 100) continue;
      ++passed;
      break;
    }
  }
  EXPECT_LE(passed, kRuns / 100);
  EXPECT_GE(over_budget_e_value(3, 14), 100);
  EXPECT_LT(over_budget_e_value(1, 14), 20);
}

TEST(FartherEValue, PassesAHundredRarelyForExchangeableLaunches) {
  constexpr int kRuns = 10'000;
  int passed = 0;
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    Rng rng(derive_seed(run, "farther"));
    std::vector<PromptDistance> a;
    std::vector<PromptDistance> b;
    for (int i = 0; i < 40; ++i) {
      const double size = std::exp(2 * rng.normal());
      a.push_back({ScorePath::scored, 256, i, size * rng.uniform()});
      b.push_back({ScorePath::scored, 256, i, size * rng.uniform()});
      if (farther_e_value(a, b) < 100) continue;
      ++passed;
      break;
    }
  }
  EXPECT_LE(passed, kRuns / 100);
}

TEST(Allowance, IsTheShiftAndTwiceTheLargestFloorOfThePath) {
  const std::vector<PromptDistance> floor{{ScorePath::scored, 256, 0, 1e-3}, {ScorePath::generated, 256, 0, 5e-3}};
  EXPECT_DOUBLE_EQ(allowance(1e-2, floor, ScorePath::scored), 1.2e-2);
  EXPECT_DOUBLE_EQ(allowance(0, floor, ScorePath::generated), 1e-2);
  EXPECT_EQ(allowance(0, {}, ScorePath::scored), 0);
}

}  // namespace
}  // namespace plumb::investigator
