#include "ops/select_topk/select_topk.h"

#include <gtest/gtest.h>

#include "ops/twin.h"

namespace plumb {
namespace {

std::vector<std::int32_t> select(const std::vector<float>& scores, std::int64_t visible, std::int64_t k) {
  Guarded<std::int32_t> out(k);
  const auto width = static_cast<std::int64_t>(scores.size());
  select_topk_ref({.scores = {scores.data(), {1, width}},
                   .first_position = visible * 4 - 1,
                   .rate = 4,
                   .selected = {out.data(), {1, k}}});
  EXPECT_TRUE(out.guards_intact());
  return {out.values().begin(), out.values().end()};
}

using Ids = std::vector<std::int32_t>;

TEST(SelectTopk, TakesTheHighestAscendingWithMinusOneInFront) {
  EXPECT_EQ(select({3, 1, 2, 5, 4}, 5, 3), (Ids{0, 3, 4}));
  EXPECT_EQ(select({3, 1}, 2, 4), (Ids{-1, -1, 0, 1}));
  EXPECT_EQ(select({}, 0, 2), (Ids{-1, -1}));
}

TEST(SelectTopk, NeverTakesRowsThatAreNotVisible) { EXPECT_EQ(select({1, 2, 9, 9}, 2, 1), (Ids{1})); }

TEST(SelectTopk, AmongEqualsTheLowerRowWins) {
  EXPECT_EQ(select({0, 0, 1, 0, 0}, 5, 3), (Ids{0, 1, 2}));
  EXPECT_EQ(select({-0.0f, 0.0f, 0.0f}, 3, 1), (Ids{0}));
}

TEST(SelectTopk, NearTiesAreDecidedByTheLastBit) {
  EXPECT_EQ(select({1.0f, std::nextafterf(1.0f, 2.0f), 1.0f}, 3, 1), (Ids{1}));
}

TEST(SelectTopk, NanRanksWithMinusInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(select({nan, -1, nan, -inf}, 4, 2), (Ids{0, 1}));
  EXPECT_EQ(select({-inf, nan, -inf}, 3, 2), (Ids{0, 1}));
}

TEST(TopK, KeepsWhatSelectTopkTakesInAnyOrderOfOffering) {
  Rng rng{61};
  for (int round = 0; round < 200; ++round) {
    const std::int64_t rows = rng.between(0, 60), k = rng.between(0, 20);
    std::vector<float> scores;
    for (std::int64_t i = 0; i < rows; ++i) scores.push_back(static_cast<float>(rng.between(-3, 3)));  // many ties
    std::vector<std::int32_t> order(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<std::int32_t>(i);
      std::swap(order[i], order[rng.below(i + 1)]);
    }
    TopK best(k);
    for (const std::int32_t row : order) best.offer(scores[static_cast<std::size_t>(row)], row);
    Ids got(static_cast<std::size_t>(k));
    best.write(got.data());
    EXPECT_EQ(got, select(scores, rows, k));
  }
}

}  // namespace
}  // namespace plumb
