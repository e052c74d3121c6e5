#include "faults/sensitivity/trials_needed.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb::faults {
namespace {

// One-sided p of the sign test, by the definition.
double sign_p(int differing, int lost) {
  double p = 0;
  for (int k = lost; k <= differing; ++k)
    p += std::exp(std::lgamma(differing + 1.0) - std::lgamma(k + 1.0) - std::lgamma(differing - k + 1.0) -
                  differing * std::log(2.0));
  return p;
}

TEST(SignTestTrials, AreSevenWhereEveryTrialIsLost) {
  EXPECT_EQ(sign_test_trials(1, 0), 7);  // 2^-7 is the first below 1 %
  EXPECT_EQ(sign_test_trials(0, 0), kNeverEnough);
  EXPECT_EQ(sign_test_trials(0.1, 0.1), kNeverEnough);
  EXPECT_EQ(sign_test_trials(1e-7, 0), kNeverEnough);
}

TEST(SignTestTrials, AreEnoughInSimulatedWorldsAndNotManyTooMany) {
  struct Shares {
    double lost, won;
  };
  for (const Shares s : {Shares{0.3, 0.0}, {0.1, 0.0}, {0.3, 0.1}}) {
    const std::int64_t trials = sign_test_trials(s.lost, s.won);
    const auto missed = [&](std::int64_t n) {
      Rng rng(7);
      int count = 0;
      constexpr int kWorlds = 4000;
      for (int world = 0; world < kWorlds; ++world) {
        int lost = 0, won = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const double u = static_cast<double>(rng.below(1u << 30)) / (1u << 30);
          lost += u < s.lost;
          won += u >= s.lost && u < s.lost + s.won;
        }
        count += sign_p(lost + won, lost) > kTestError;
      }
      return count / double{kWorlds};
    };
    EXPECT_LE(missed(trials), 0.015) << trials;
    EXPECT_GE(missed(trials * 3 / 4), 0.015) << trials;
  }
}

TEST(SignTestTrials, MeetTheNormalApproximationWhereTheyPart) {
  EXPECT_NEAR(static_cast<double>(sign_test_trials(0.12, 0.04)) / static_cast<double>(sign_test_trials(0.06, 0.02)),
              0.5, 0.03);
}

TEST(MeanTestTrials, GrowWithTheSquareOfTheRatio) {
  EXPECT_EQ(mean_test_trials(1, 1), 22);  // (2 · 2.326)² = 21.6
  EXPECT_EQ(mean_test_trials(-1, 10), 2165);
  EXPECT_EQ(mean_test_trials(1, 0), 2);
  EXPECT_EQ(mean_test_trials(0, 1), kNeverEnough);
  EXPECT_EQ(mean_test_trials(1e-6, 1), kNeverEnough);
}

TEST(SeenTrials, LeaveOnePercentUnseen) {
  EXPECT_EQ(seen_trials(1), 1);
  EXPECT_EQ(seen_trials(0.5), 7);  // 2^-7
  EXPECT_EQ(seen_trials(0.01), 459);
  EXPECT_EQ(seen_trials(0), kNeverEnough);
  EXPECT_NEAR(zero_bound(300), 0.01, 1e-4);
}

}  // namespace
}  // namespace plumb::faults
