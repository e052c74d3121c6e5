#pragma once

namespace plumb::investigator {

/// P(X <= k) of a binomial with n draws at rate p; exact sum.
double binomial_cdf(int k, int n, double p);

/// Clopper-Pearson limits: exact, each one-sided at `confidence`.
double upper_limit(int failures, int trials, double confidence);
double lower_limit(int failures, int trials, double confidence);

struct Interval {
  double low;
  double high;
};
/// Two-sided 95 % Clopper-Pearson interval.
Interval interval_95(int failures, int trials);

/// One-sided Fisher's exact test: probability, given the margins, of at least `bad_failures` failures among
/// `bad_trials` when both groups fail alike. Small: the first group fails more often.
double fisher_more(int bad_failures, int bad_trials, int good_failures, int good_trials);

/// P(X = k) and P(X <= k) of n draws whose rate is Beta(a, b) distributed.
double beta_binomial_pmf(int k, int n, double a, double b);
double beta_binomial_cdf(int k, int n, double a, double b);

/// log of Beta(a + k, b + n - k) / Beta(a, b): the probability of one sequence with k failures of n, the rate
/// integrated.
double log_beta_ratio(int k, int n, double a, double b);

/// An anytime-valid test that launches of one variant fail more often than launches of another: each pair of launches
/// multiplies the e-value by
///   pa^xa (1-pa)^(1-xa) pb^xb (1-pb)^(1-xb) / (p0^(xa+xb) (1-p0)^(2-xa-xb)),  p0 = (pa + pb) / 2,
/// where x = 1 for a failing launch and pa, pb are estimated from the earlier pairs alone (starting at 0.8 and 0.2 with
/// the weight of two launches). Under equal rates, whatever they are, its expectation stays at most 1, so that 100 is
/// passed with probability at most 1 %. Five pairs of perfect separation pass 100. Source: Turner, Ly, Grünwald,
/// "Generic E-variables for exact sequential k-sample tests", the case of blocks (1, 1).
class PairedEValue {
 public:
  void add(bool should_fail_did, bool should_pass_did_fail);
  double value() const { return value_; }
  int pairs() const { return pairs_; }

 private:
  double value_ = 1;
  int pairs_ = 0;
  int fails_a_ = 0;
  int fails_b_ = 0;
};

}  // namespace plumb::investigator
