#include "investigator/additive.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb::investigator {
namespace {

using Matrix = std::vector<std::vector<double>>;

// What characterises the minimum: no component can be raised or lowered to gain (Karush, Kuhn, Tucker).
void expect_minimum(const Matrix& a, const std::vector<double>& b, const std::vector<double>& x) {
  double scale = 0;
  for (const auto& row : a)
    for (const double value : row) scale = std::max(scale, std::abs(value));
  for (std::size_t j = 0; j < x.size(); ++j) {
    double gradient = 0;
    for (std::size_t r = 0; r < a.size(); ++r) {
      double residual = b[r];
      for (std::size_t k = 0; k < x.size(); ++k) residual -= a[r][k] * x[k];
      gradient += a[r][j] * residual;
    }
    EXPECT_GE(x[j], 0);
    if (x[j] > 0)
      EXPECT_NEAR(gradient, 0, 1e-8 * scale * scale) << "component " << j;
    else
      EXPECT_LE(gradient, 1e-8 * scale * scale) << "component " << j;
  }
}

TEST(NonNegativeLeastSquares, MeetsTheConditionsOfTheMinimum) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Rng rng(seed);
    const std::size_t rows = 1 + rng.below(12);
    const std::size_t columns = 1 + rng.below(8);
    Matrix a(rows, std::vector<double>(columns));
    std::vector<double> b(rows);
    for (auto& row : a)
      for (double& value : row) value = rng.normal();
    for (double& value : b) value = rng.normal();
    if (columns > 1 && seed % 5 == 0)
      for (auto& row : a) row[1] = row[0];  // columns that depend on each other
    SCOPED_TRACE(seed);
    expect_minimum(a, b, non_negative_least_squares(a, b));
  }
}

TEST(NonNegativeLeastSquares, SolvesByHand) {
  EXPECT_EQ(non_negative_least_squares({{1, 0}, {0, 1}}, {2, -3}), (std::vector<double>{2, 0}));
  const auto x = non_negative_least_squares({{1, 1}, {1, 1}, {1, 0}}, {3, 3, 1});
  EXPECT_NEAR(x[0], 1, 1e-12);
  EXPECT_NEAR(x[1], 2, 1e-12);
  EXPECT_TRUE(non_negative_least_squares({}, {}).empty());
}

// D of single switches and sets of them; each prompt has a size of its own.
std::vector<AdditiveSample> launches(Rng& rng, const std::vector<double>& terms, double pair01, double noise) {
  std::vector<AdditiveSample> samples;
  const std::size_t n = terms.size();
  std::vector<double> prompts(14);
  for (double& p : prompts) p = std::exp(0.5 * rng.normal());
  const auto add = [&](std::vector<bool> turned) {
    double d = turned[0] && turned[1] ? pair01 : 0;
    for (std::size_t s = 0; s < n; ++s) d += turned[s] ? terms[s] : 0;
    AdditiveSample sample{turned, {}};
    for (const double p : prompts) sample.d.push_back(d * p * std::exp(noise * rng.normal()));
    samples.push_back(std::move(sample));
  };
  for (std::size_t s = 0; s < n; ++s) {
    std::vector<bool> turned(n, false);
    turned[s] = true;
    add(turned);
  }
  for (int i = 0; i < 12; ++i) {
    std::vector<bool> turned(n);
    for (std::size_t s = 0; s < n; ++s) turned[s] = rng.below(2) == 0;
    add(turned);
  }
  add(std::vector<bool>(n, true));
  return samples;
}

TEST(AdditiveModel, FindsTermsAndTheirShares) {
  int covered = 0;
  int asked = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const std::vector<double> terms{1e-3, 2e-3, 3e-3, 0, 4e-3};
    const auto samples = launches(rng, terms, 0, 0.1);
    const AdditiveModel model = fit_additive(samples);
    const auto shares = shares_of(samples, model, std::vector<bool>(5, true), seed);
    EXPECT_GT(model.explained, 0.95);
    for (std::size_t s = 0; s < 5; ++s) {
      EXPECT_NEAR(shares[s].share, terms[s] / 1e-2, 0.05) << "seed " << seed;
      ++asked;
      covered += shares[s].low - 1e-9 <= terms[s] / 1e-2 && terms[s] / 1e-2 <= shares[s].high + 1e-9 ? 1 : 0;
    }
  }
  EXPECT_GE(covered, 85 * asked / 100);
}

TEST(AdditiveModel, TakesAPairOnlyWhenTheLaunchesShowOne) {
  int found = 0;
  int imagined = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    const AdditiveModel with_pair = fit_additive(launches(rng, {1e-3, 1e-3, 1e-3, 1e-3}, 6e-3, 0.05));
    found += with_pair.pairs.size() == 1 && with_pair.pairs[0].first == 0 && with_pair.pairs[0].second == 1 ? 1 : 0;
    imagined += fit_additive(launches(rng, {1e-3, 1e-3, 1e-3, 1e-3}, 0, 0.05)).pairs.empty() ? 0 : 1;
  }
  EXPECT_GE(found, 90);
  EXPECT_LE(imagined, 10);
}

TEST(DosePValue, IsSmallOnlyWhereFailuresAreFartherAway) {
  EXPECT_LE(dose_p_value({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                         {false, false, false, false, false, false, true, true, true, true, true}, 1),
            0.01);
  EXPECT_EQ(dose_p_value({1, 2, 3}, {false, false, false}, 1), 1);
  EXPECT_EQ(dose_p_value({1, 2, 3}, {true, true, true}, 1), 1);
  int small = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng(seed);
    std::vector<double> d;
    std::vector<bool> failed;
    for (int i = 0; i < 15; ++i) {
      d.push_back(rng.uniform());
      failed.push_back(rng.below(3) == 0);
    }
    small += dose_p_value(d, failed, seed) <= 0.05 ? 1 : 0;
  }
  EXPECT_LE(small, 70);
}

}  // namespace
}  // namespace plumb::investigator
