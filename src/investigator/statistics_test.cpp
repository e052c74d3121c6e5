#include "investigator/statistics.h"

#include <cmath>

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

// Launches as they are under no difference: a share of them is bad as a whole, in either variant alike.
struct Null {
  double bad_launches;
  double rate_when_bad;
  double rate_when_good;
};

TEST(Statistics, UnderNoDifferenceNoEProcessPassesAHundredOftenerThanOnceInAHundred) {
  constexpr int kRuns = 10'000;
  constexpr int kPairs = 60;
  for (const Null& null : {Null{0.5, 1, 0}, Null{0.1, 1, 0.02}, Null{0.3, 0.9, 0.1}, Null{0.9, 0.95, 0.5}}) {
    int by_failures = 0;
    int by_sign = 0;
    for (std::uint64_t run = 0; run < kRuns; ++run) {
      Rng rng(derive_seed(run, "null"));
      PairedEValue failures;
      SignEProcess sign;
      bool over_failures = false;
      bool over_sign = false;
      const auto launch_rate = [&] {
        return rng.uniform() < null.bad_launches ? null.rate_when_bad : null.rate_when_good;
      };
      // D of a launch: Cauchy, without mean or variance, on top of an effect of the launch.
      const auto heavy_tailed = [&](double rate) {
        return 5 * rate + std::tan(3.14159265358979 * (rng.uniform() - 0.5));
      };
      for (int i = 0; i < kPairs; ++i) {
        const double a = launch_rate();
        const double b = launch_rate();
        failures.add(rng.uniform() < a, rng.uniform() < b);
        sign.add(heavy_tailed(a), heavy_tailed(b));
        over_failures |= failures.value() >= 100;  // peeking after every pair
        over_sign |= sign.value() >= 100;
      }
      by_failures += over_failures ? 1 : 0;
      by_sign += over_sign ? 1 : 0;
    }
    EXPECT_LE(by_failures, kRuns / 100) << null.bad_launches;
    EXPECT_LE(by_sign, kRuns / 100) << null.bad_launches;
  }
}

struct Trials {
  double mean = 0;
  double mean_of_wald = 0;
  double wrong = 0;  // share of runs that ended on the other side
};

// Runs an e-process to either limit on trials that fail at `rate`, beside Wald's test at 1 % and 1 % on the same
// trials.
Trials run_simple(double p0, double p1, double rate, bool fault) {
  constexpr int kRuns = 10'000;
  Trials t;
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    Rng rng(derive_seed(run, "simple"));
    SimpleEProcess e(p0, p1);
    double ratio = 1;
    int wald = 0;
    while (e.value() < 100 && e.value() > 0.01) {
      const bool failed = rng.uniform() < rate;
      e.add(failed);
      ratio *= failed ? p1 / p0 : (1 - p1) / (1 - p0);
      if (wald == 0 && (ratio >= 99 || ratio <= 1.0 / 99)) wald = e.trials();
    }
    t.mean += e.trials() / static_cast<double>(kRuns);
    t.mean_of_wald += wald / static_cast<double>(kRuns);
    t.wrong += (e.value() >= 100) != fault ? 1.0 / kRuns : 0;
  }
  return t;
}

TEST(Statistics, SimpleHypothesesCostWhatWaldsTestCosts) {
  // Mean trials of Wald's test by his formulas, which leave out by how much the last trial oversteps: under the fault
  // and under none.
  struct Row {
    double p0, p1, under_fault, under_none;
  };
  for (const Row& row :
       {Row{0.001, 0.02, 110, 278}, Row{0.005, 0.05, 63, 130}, Row{0.01, 0.1, 31, 63}, Row{0.05, 0.25, 20, 31}}) {
    const Trials fault = run_simple(row.p0, row.p1, row.p1, true);
    const Trials none = run_simple(row.p0, row.p1, row.p0, false);
    EXPECT_LE(fault.mean, 1.15 * fault.mean_of_wald) << row.p0;
    EXPECT_LE(none.mean, 1.15 * none.mean_of_wald) << row.p0;
    EXPECT_LE(fault.mean, 1.25 * row.under_fault) << row.p0;
    EXPECT_LE(none.mean, 1.15 * row.under_none) << row.p0;
    constexpr double kWrong = 0.01 + 3 * 0.001;  // 1 %, and three standard errors of 10,000 runs
    EXPECT_LE(fault.wrong, kWrong) << row.p0;
    EXPECT_LE(none.wrong, kWrong) << row.p0;
  }
}

TEST(Statistics, NotKnowingTheRatesCostsAtMostHalfAsMuchAgain) {
  constexpr int kRuns = 2'000;
  constexpr int kMostPairs = 10'000;
  struct Rates {
    double a, b;
  };
  for (const Rates& rates : {Rates{0.99, 0.01}, Rates{0.9, 0.1}, Rates{0.6, 0.01}, Rates{0.8, 0.3}, Rates{0.5, 0.1},
                             Rates{0.4, 0.02}, Rates{0.25, 0.05}}) {
    double pairs = 0;
    double oracle_pairs = 0;
    for (std::uint64_t run = 0; run < kRuns; ++run) {
      Rng rng(derive_seed(run, "power"));
      const double p0 = (rates.a + rates.b) / 2;
      double oracle = 0;  // log likelihood ratio of one who knows both rates
      int oracle_stop = 0;
      PairedEValue e;
      int stop = 0;
      for (int i = 1; i <= kMostPairs && (stop == 0 || oracle_stop == 0); ++i) {
        const bool a = rng.uniform() < rates.a;
        const bool b = rng.uniform() < rates.b;
        e.add(a, b);
        oracle +=
            std::log((a ? rates.a / p0 : (1 - rates.a) / (1 - p0)) * (b ? rates.b / p0 : (1 - rates.b) / (1 - p0)));
        if (stop == 0 && e.value() >= 100) stop = i;
        if (oracle_stop == 0 && oracle >= std::log(100)) oracle_stop = i;
      }
      ASSERT_GT(stop * oracle_stop, 0) << rates.a << " " << rates.b;
      pairs += stop;
      oracle_pairs += oracle_stop;
    }
    EXPECT_LE(pairs, 1.5 * oracle_pairs) << rates.a << " " << rates.b;
  }
}

TEST(Statistics, TheSignTestSeesAShiftUnderHeavyTails) {
  int seen = 0;
  constexpr int kRuns = 200;
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    Rng rng(derive_seed(run, "shift"));
    const auto cauchy = [&] { return std::tan(3.14159265358979 * (rng.uniform() - 0.5)); };
    SignEProcess e;
    for (int i = 0; i < 60 && e.value() < 100; ++i) e.add(4 + cauchy(), cauchy());
    seen += e.value() >= 100 ? 1 : 0;
  }
  EXPECT_GE(seen, 195);
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
