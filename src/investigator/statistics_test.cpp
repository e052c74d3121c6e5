#include "investigator/statistics.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "investigator/design.h"

namespace plumb::investigator {
namespace {

TEST(Statistics, LimitsAreThoseOfTheTables) {
  // Zero failures in 20 / 60 / 300 trials rule out rates above 13.9 / 4.9 / 1.0 %.
  EXPECT_NEAR(upper_limit(0, 20, 0.95), 0.1391, 5e-5);
  EXPECT_NEAR(upper_limit(0, 60, 0.95), 0.0487, 5e-5);
  EXPECT_NEAR(upper_limit(0, 300, 0.95), 0.00994, 5e-6);
  EXPECT_LE(upper_limit(0, 59, 0.95), 0.05);
  EXPECT_GT(upper_limit(0, 58, 0.95), 0.05);
  // After 3 / 10 / 29 clean launches: 63 / 26 / 10 %.
  EXPECT_NEAR(upper_limit(0, 3, 0.95), 0.63, 5e-3);
  EXPECT_NEAR(upper_limit(0, 29, 0.95), 0.10, 5e-3);
  EXPECT_EQ(upper_limit(5, 5, 0.95), 1);
  const Interval i = interval_95(3, 10);
  EXPECT_NEAR(i.low, 0.0667, 5e-5);
  EXPECT_NEAR(i.high, 0.6525, 5e-5);
}

TEST(Statistics, FishersTestIsExact) {
  EXPECT_NEAR(fisher_more(5, 5, 0, 5), 1.0 / 252, 1e-12);
  EXPECT_NEAR(fisher_more(3, 3, 0, 3), 1.0 / 20, 1e-12);
  EXPECT_NEAR(fisher_more(0, 5, 0, 5), 1, 1e-12);
  EXPECT_NEAR(fisher_more(0, 5, 5, 5), 1, 1e-12);
}

TEST(Statistics, BetaBinomialSumsToOne) {
  double sum = 0;
  for (int k = 0; k <= 12; ++k) sum += beta_binomial_pmf(k, 12, 0.5, 3.5);
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(beta_binomial_pmf(1, 4, 1, 1), 0.2, 1e-12);  // uniform rate: every count alike
}

TEST(Statistics, FivePairsOfPerfectSeparationAreEnoughFourAreNot) {
  PairedEValue e;
  for (int i = 0; i < 4; ++i) e.add(true, false);
  EXPECT_LT(e.value(), 100);
  e.add(true, false);
  EXPECT_GE(e.value(), 100);
}

TEST(Statistics, EvidenceForTheOppositeNeverCounts) {
  PairedEValue e;
  for (int i = 0; i < 30; ++i) e.add(false, true);
  EXPECT_LT(e.value(), 1);
}

TEST(Statistics, UnderEqualRatesTheEValueRarelyPassesAHundred) {
  constexpr int kRuns = 10'000;
  for (const double rate : {0.1, 0.3, 0.5, 0.9}) {
    int passed = 0;
    for (std::uint64_t run = 0; run < kRuns; ++run) {
      Rng rng(derive_seed(run, "null"));
      PairedEValue e;
      bool over = false;
      for (int i = 0; i < 16; ++i) {
        const bool a = rng.uniform() < rate;
        const bool b = rng.uniform() < rate;
        e.add(a, b);
        over |= e.value() >= 100;  // peeking after every pair
      }
      passed += over ? 1 : 0;
    }
    EXPECT_LE(passed, kRuns / 100) << rate;
  }
}

TEST(Design, IsSmallForCleanSeparationAndNoneForNone) {
  const auto easy = choose_design({8, 8}, {0, 40});
  ASSERT_TRUE(easy);
  EXPECT_LE(easy->trials, 6);
  const auto harder = choose_design({8, 24}, {0, 60});
  ASSERT_TRUE(harder);
  EXPECT_GT(harder->trials, easy->trials);
  EXPECT_FALSE(choose_design({1, 20}, {1, 20}));
}

}  // namespace
}  // namespace plumb::investigator
