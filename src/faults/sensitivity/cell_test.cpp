#include "faults/sensitivity/cell.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb::faults {
namespace {

Cell cell_of(std::int64_t tokens, int trials, const TrialDifference& each) {
  return {.tokens = tokens, .trials = std::vector<TrialDifference>(static_cast<std::size_t>(trials), each)};
}
const TrialDifference kEqual{.decode_gap = 0};
const TrialDifference kMoved{.nats = 0.5, .d = 1e-3, .kl = 1e-3, .differs = true};
const TrialDifference kLost{.lost = 1, .nats = 2, .d = 1, .kl = 1, .differs = true};

TEST(CellSummary, CountsMeansAndShares) {
  Cell cell = cell_of(256, 6, kEqual);
  cell.trials.push_back({.lost = 1, .nats = 7, .d = 0.7, .kl = 1.4, .decode_gap = 0.5, .differs = true});
  const CellSummary s = summary_of(cell);
  EXPECT_EQ(s.trials, 7);
  EXPECT_EQ(s.exact.worse, 1);
  EXPECT_EQ(s.exact.seen_after, 0);
  EXPECT_DOUBLE_EQ(s.nats_mean, 1);
  EXPECT_NEAR(s.nats_sd, 2.6457513, 1e-6);
  EXPECT_DOUBLE_EQ(s.d_mean, 0.1);
  EXPECT_NEAR(s.d_share, 1.0 / 7, 1e-12);
  EXPECT_EQ(s.d_after, 7);
  EXPECT_EQ(s.scored, 7);
  EXPECT_NEAR(s.gap_share, 1.0 / 7, 1e-12);
  EXPECT_DOUBLE_EQ(s.gap_max, 0.5);
  EXPECT_EQ(s.differing, 1);
}

TEST(CellSummary, IsSignificantAfterNineLostAndNoneWon) {
  EXPECT_EQ(summary_of(cell_of(256, 8, kLost)).exact.seen_after, 0);
  EXPECT_EQ(summary_of(cell_of(256, 30, kLost)).exact.seen_after, 9);
}

// Lost and won by a fair coin, and looked at after every trial: at most 1 % of the worlds are ever called.
TEST(CellSummary, LookingAfterEachTrialErrsInOnePercent) {
  int called = 0;
  constexpr int kWorlds = 100;
  for (int world = 0; world < kWorlds; ++world) {
    Rng rng(static_cast<std::uint64_t>(world));
    Cell cell{.tokens = 256, .trials = {}};
    for (int i = 0; i < 120; ++i) {
      const int coin = static_cast<int>(rng.below(2));
      cell.trials.push_back({.lost = coin, .won = 1 - coin});
    }
    called += summary_of(cell).exact.seen_after > 0;
  }
  EXPECT_LE(called, 1);
}

TEST(IsFinished, AsItsRulesSay) {
  EXPECT_FALSE(is_finished(cell_of(256, 15, kEqual), 304));
  EXPECT_TRUE(is_finished(cell_of(256, 16, kEqual), 304)) << "nothing differs";
  EXPECT_TRUE(is_finished(cell_of(4096, 8, kEqual), 32));
  EXPECT_FALSE(is_finished(cell_of(256, 15, kLost), 304)) << "significant, but means need more";
  EXPECT_TRUE(is_finished(cell_of(256, 16, kLost), 304));
  EXPECT_FALSE(is_finished(cell_of(256, 120, kMoved), 304));
  EXPECT_TRUE(is_finished(cell_of(256, 128, kMoved), 304)) << "none lost";
  TrialDifference weak = kMoved;
  weak.nats = 0.01;
  EXPECT_FALSE(is_finished(cell_of(256, 56, weak), 304));
  EXPECT_TRUE(is_finished(cell_of(256, 64, weak), 304)) << "no answer moves";
  EXPECT_TRUE(is_finished(cell_of(4096, 16, weak), 32));
  EXPECT_FALSE(is_finished(cell_of(4096, 16, kMoved), 32));
  EXPECT_TRUE(is_finished(cell_of(8192, 16, kMoved), 16)) << "all were asked";
}

}  // namespace
}  // namespace plumb::faults
