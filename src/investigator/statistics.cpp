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

SimpleEProcess::SimpleEProcess(double p0, double p1)
    : log_if_failed_(std::log(p1 / p0)), log_if_not_(std::log((1 - p1) / (1 - p0))) {
  CHECK(0 < p0 && p0 < 1 && 0 < p1 && p1 < 1);
}

void SimpleEProcess::add(bool failed) {
  log_value_ += failed ? log_if_failed_ : log_if_not_;
  ++trials_;
}

double SimpleEProcess::value() const { return std::exp(log_value_); }

namespace {

// Pairs (pa, pb), pa > pb: failure rates of launches worth telling apart, symmetric about 1/2.
struct GridPoint {
  double factors[4];  // of a pair: neither failed, the second, the first, both
};

const std::vector<GridPoint>& grid() {
  static const std::vector<GridPoint> kGrid = [] {
    constexpr double kRates[] = {0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99};
    std::vector<GridPoint> points;
    for (const double pa : kRates)
      for (const double pb : kRates)
        if (pa > pb) {
          const double p0 = (pa + pb) / 2;
          const double fa = pa / p0;
          const double fb = pb / p0;
          const double ga = (1 - pa) / (1 - p0);
          const double gb = (1 - pb) / (1 - p0);
          points.push_back({{ga * gb, ga * fb, fa * gb, fa * fb}});
        }
    return points;
  }();
  return kGrid;
}

constexpr double kStakes[] = {0.1, 0.3, 0.6, 0.9};

}  // namespace

PairedEValue::PairedEValue() : values_(grid().size(), 1 / static_cast<double>(grid().size())) {}

void PairedEValue::add(bool should_fail_did, bool should_pass_did_fail) {
  const std::size_t outcome = (should_fail_did ? 2 : 0) + (should_pass_did_fail ? 1 : 0);
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i] *= grid()[i].factors[outcome];
  ++pairs_;
}

double PairedEValue::value() const {
  double sum = 0;
  for (const double v : values_) sum += v;
  return sum;
}

SignEProcess::SignEProcess() : values_(std::size(kStakes), 1.0 / static_cast<double>(std::size(kStakes))) {}

void SignEProcess::add(double should_be_larger, double other) {
  const int sign = should_be_larger > other ? 1 : should_be_larger < other ? -1 : 0;
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i] *= 1 + kStakes[i] * sign;
  ++pairs_;
}

double SignEProcess::value() const {
  double sum = 0;
  for (const double v : values_) sum += v;
  return sum;
}

}  // namespace plumb::investigator
