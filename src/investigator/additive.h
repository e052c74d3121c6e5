#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace plumb::investigator {

/// Minimises the sum of squares of (a x - b) over x >= 0, by Lawson and Hanson's active set: a variable enters where
/// the gradient lowers the sum most, and leaves when the least-squares solution of those inside would make it negative.
/// a: rows of equal length; b: one value a row. Small problems: the normal equations are solved by Cholesky, a column
/// that depends on those inside stays out. Source: Lawson, Hanson, "Solving Least Squares Problems", chapter 23.
std::vector<double> non_negative_least_squares(const std::vector<std::vector<double>>& a, const std::vector<double>& b);

/// A launch for the additive model: which of the suspects are at their other side, and its D prompt by prompt.
struct AdditiveSample {
  std::vector<bool> turned;
  std::vector<double> d;  // the same prompts in the same order for all samples
};

/// D of a launch as a sum of what its turned switches add,
///   D(launch) = sum over turned s of term[s] + sum over pairs (s, t) both turned of pair[s, t],   all terms >= 0,
/// fitted to the means over prompts, each launch weighted by 1 / (its D + the mean D / 10): errors grow with D.
struct AdditiveModel {
  std::vector<double> terms;
  struct Pair {
    std::size_t first, second;
    double term;
  };
  std::vector<Pair> pairs;
  double explained = 0;  // 1 - weighted squared residuals / weighted squares

  double predict(const std::vector<bool>& turned) const;
  /// The part of predict(turned) that switch s has, half of each of its pairs; 0 when nothing is predicted.
  double share(std::size_t s, const std::vector<bool>& turned) const;
};

/// Terms of all switches, and pairs as long as the launches support them: at most one for each three launches beyond
/// the switches, chosen one by one, and kept when it lowers the Bayesian information criterion by kPairEvidence.
AdditiveModel fit_additive(const std::vector<AdditiveSample>& samples);
inline constexpr double kPairEvidence = 6;

/// Shares of the switches in one launch, with 95 % intervals over prompts: prompts are drawn anew with replacement,
/// the terms (with the pairs found) fitted again.
struct Share {
  double share = 0;
  double low = 0;
  double high = 0;
};
std::vector<Share> shares_of(const std::vector<AdditiveSample>& samples, const AdditiveModel& model,
                             const std::vector<bool>& turned, std::uint64_t seed);

/// Probability that passing and failing launches are as well separated by D as these are, if D had nothing to do with
/// failing: the rank sum of the failing ones among all permutations of the outcomes (Mann and Whitney, one-sided,
/// 4,999 of them drawn from the seed, ties at half). 1 when all failed or none did.
double dose_p_value(const std::vector<double>& d, const std::vector<bool>& failed, std::uint64_t seed);

}  // namespace plumb::investigator
