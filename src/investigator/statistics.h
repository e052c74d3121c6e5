#pragma once

#include <vector>

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

/// Two simple hypotheses about a rate, told apart trial by trial: the likelihood ratio
///   value = product over trials of p1^x (1-p1)^(1-x) / (p0^x (1-p0)^(1-x)),   x = 1 for a failure.
/// Under p0 its expectation is 1 after every trial and at every stopping time, and so is that of 1/value under p1: with
/// probability at most alpha does it ever pass 1/alpha under p0, or fall below alpha under p1 (Ville's inequality).
/// Stopping at 1/alpha and alpha costs as many trials as Wald's sequential test, whose limits are
/// (1 - alpha)/alpha and alpha/(1 - alpha).
class SimpleEProcess {
 public:
  /// 0 < p0, p1 < 1.
  SimpleEProcess(double p0, double p1);
  void add(bool failed);
  double value() const;
  int trials() const { return trials_; }

 private:
  double log_if_failed_;
  double log_if_not_;
  double log_value_ = 0;
  int trials_ = 0;
};

/// An anytime-valid test that launches of one variant fail more often than launches of another, both rates unknown. For
/// fixed pa > pb each pair of launches multiplies
///   pa^xa (1-pa)^(1-xa) pb^xb (1-pb)^(1-xb) / (p0^(xa+xb) (1-p0)^(2-xa-xb)),  p0 = (pa + pb) / 2,
/// where x = 1 for a failing launch. With u(x) = x/p0 - (1-x)/(1-p0) and d = pa - p0 a factor is
/// (1 + d u(xa)) (1 - d u(xb)); if both launches fail with the same probability, whatever it is and however it drifts,
/// its expectation is 1 - d^2 E[u(xa) u(xb)], at most 1 unless the two launches repel each other. That covers launches
/// which are bad as a whole, and prompts shared by the pair. The value is the mean over a grid of (pa, pb), so
/// the same holds of it: 100 is passed with probability at most 1 % ever. Five pairs of perfect separation pass 100.
/// Source of the factor: Turner, Ly, Grünwald, "Generic E-variables for exact sequential k-sample tests", the case of
/// blocks (1, 1).
class PairedEValue {
 public:
  PairedEValue();
  void add(bool should_fail_did, bool should_pass_did_fail);
  double value() const;
  int pairs() const { return pairs_; }

 private:
  int pairs_ = 0;
  std::vector<double> values_;  // of the grid, weights included
};

/// An anytime-valid test that one of two variants has the larger values (D, log-probability lost, a failing fraction),
/// for values of any distribution: only which launch of a pair is worse counts, s = 1, 0 (equal) or -1. If the launches
/// of a pair are exchangeable, s is symmetric, so the product of (1 + b s) has expectation 1 for every stake b in
/// [0, 1): no moment of the values needs to exist. The value is a mean over a grid of stakes.
class SignEProcess {
 public:
  SignEProcess();
  void add(double should_be_larger, double other);
  double value() const;
  int pairs() const { return pairs_; }

 private:
  int pairs_ = 0;
  std::vector<double> values_;  // one a stake
};

}  // namespace plumb::investigator
