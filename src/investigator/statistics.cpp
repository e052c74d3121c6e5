#include "investigator/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace plumb::investigator {
namespace {

constexpr int kBisections = 60;  // to 1e-18: below double's resolution of a rate

double log_choose(int n, int k) { return std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0); }

double log_beta(double a, double b) { return std::lgamma(a) + std::lgamma(b) - std::lgamma(a + b); }

}  // namespace

double binomial_cdf(int k, int n, double p) {
  if (k < 0) return 0;
  if (k >= n || p <= 0) return 1;
  if (p >= 1) return 0;
  double sum = 0;
  for (int i = 0; i <= k; ++i) sum += std::exp(log_choose(n, i) + i * std::log(p) + (n - i) * std::log1p(-p));
  return std::min(1.0, sum);
}

double upper_limit(int failures, int trials, double confidence) {
  CHECK(0 <= failures && failures <= trials);
  if (failures == trials) return 1;
  double low = 0;
  double high = 1;
  for (int i = 0; i < kBisections; ++i) {
    const double p = (low + high) / 2;
    (binomial_cdf(failures, trials, p) > 1 - confidence ? low : high) = p;
  }
  return high;
}

double lower_limit(int failures, int trials, double confidence) {
  return 1 - upper_limit(trials - failures, trials, confidence);
}

Interval interval_95(int failures, int trials) {
  if (trials == 0) return {0, 1};
  return {failures == 0 ? 0 : lower_limit(failures, trials, 0.975), upper_limit(failures, trials, 0.975)};
}

double fisher_more(int bad_failures, int bad_trials, int good_failures, int good_trials) {
  const int failures = bad_failures + good_failures;
  const int trials = bad_trials + good_trials;
  double sum = 0;
  for (int k = bad_failures; k <= std::min(bad_trials, failures); ++k) {
    if (failures - k > good_trials) continue;
    sum += std::exp(log_choose(bad_trials, k) + log_choose(good_trials, failures - k) - log_choose(trials, failures));
  }
  return std::min(1.0, sum);
}

double log_beta_ratio(int k, int n, double a, double b) { return log_beta(a + k, b + n - k) - log_beta(a, b); }

double beta_binomial_pmf(int k, int n, double a, double b) {
  return std::exp(log_choose(n, k) + log_beta_ratio(k, n, a, b));
}

double beta_binomial_cdf(int k, int n, double a, double b) {
  double sum = 0;
  for (int i = 0; i <= std::min(k, n); ++i) sum += beta_binomial_pmf(i, n, a, b);
  return std::min(1.0, sum);
}

void PairedEValue::add(bool should_fail_did, bool should_pass_did_fail) {
  constexpr double kStart = 0.8;
  constexpr double kWeight = 2;
  double pa = (kStart * kWeight + fails_a_) / (kWeight + pairs_);
  double pb = ((1 - kStart) * kWeight + fails_b_) / (kWeight + pairs_);
  if (pa < pb) pa = pb = (pa + pb) / 2;  // evidence for the opposite must not count
  const double p0 = (pa + pb) / 2;
  const auto likelihood = [](double p, bool x) { return x ? p : 1 - p; };
  value_ *= likelihood(pa, should_fail_did) * likelihood(pb, should_pass_did_fail) /
            (likelihood(p0, should_fail_did) * likelihood(p0, should_pass_did_fail));
  ++pairs_;
  fails_a_ += should_fail_did ? 1 : 0;
  fails_b_ += should_pass_did_fail ? 1 : 0;
}

}  // namespace plumb::investigator
