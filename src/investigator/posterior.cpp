#include "investigator/posterior.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "investigator/history.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

struct Rates {
  double a;
  double b;
};
constexpr Rates kBad{4, 0.5};
constexpr Rates kGood{0.5, 8};
constexpr Rates kFree{0.5, 0.5};

bool predicts_failure(const Hypothesis& h, const Variant& variant, const Variant& bad) {
  const auto at_bad_side = [&](std::size_t s) { return variant[s] == bad[s]; };
  switch (h.kind) {
    case Hypothesis::Class::base:
      return true;
    case Hypothesis::Class::any_of:
      return std::any_of(h.members.begin(), h.members.end(), at_bad_side);
    case Hypothesis::Class::all_of:
      return std::all_of(h.members.begin(), h.members.end(), at_bad_side);
    case Hypothesis::Class::none:
    case Hypothesis::Class::other:
      break;
  }
  return false;
}

double log_likelihood(const Hypothesis& h, const std::vector<LaunchOutcome>& outcomes, const Variant& bad) {
  if (h.kind == Hypothesis::Class::other) {
    std::map<Variant, Counts> by_variant;
    for (const LaunchOutcome& o : outcomes) by_variant[o.variant] += {o.failed ? 1 : 0, 1};
    double sum = 0;
    for (const auto& [variant, c] : by_variant) sum += log_beta_ratio(c.failures, c.trials, kFree.a, kFree.b);
    return sum;
  }
  Counts when_bad;
  Counts when_good;
  for (const LaunchOutcome& o : outcomes)
    (predicts_failure(h, o.variant, bad) ? when_bad : when_good) += {o.failed ? 1 : 0, 1};
  return log_beta_ratio(when_bad.failures, when_bad.trials, kBad.a, kBad.b) +
         log_beta_ratio(when_good.failures, when_good.trials, kGood.a, kGood.b);
}

using Class = Hypothesis::Class;

// All hypotheses with their prior weights.
std::vector<std::pair<Hypothesis, double>> hypotheses(const std::vector<std::size_t>& suspects) {
  std::vector<std::pair<Hypothesis, double>> all;
  std::vector<std::vector<std::size_t>> by_size[4];
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    by_size[1].push_back({suspects[i]});
    for (std::size_t j = i + 1; j < suspects.size(); ++j) {
      by_size[2].push_back({suspects[i], suspects[j]});
      for (std::size_t k = j + 1; k < suspects.size(); ++k)
        by_size[3].push_back({suspects[i], suspects[j], suspects[k]});
    }
  }
  constexpr double kShare[4] = {0, 0.5, 0.2, 0.1};
  for (int size = 1; size <= 3; ++size)
    for (const auto& members : by_size[size]) {
      const double share = kShare[size] / static_cast<double>(by_size[size].size());
      all.push_back({{Class::any_of, members}, size == 1 ? share : share / 2});
      if (size > 1) all.push_back({{Class::all_of, members}, share / 2});
    }
  all.push_back({{Class::none, {}}, 0.1});
  all.push_back({{Class::base, {}}, 0.05});
  all.push_back({{Class::other, {}}, 0.05});
  return all;
}

}  // namespace

Posterior posterior(const std::vector<LaunchOutcome>& outcomes, const Variant& bad,
                    const std::vector<std::size_t>& suspects, const Hypothesis& hypothesis) {
  const auto all = hypotheses(suspects);
  std::vector<double> log_likelihoods;
  for (const auto& [h, weight] : all) log_likelihoods.push_back(log_likelihood(h, outcomes, bad));
  const double peak = *std::max_element(log_likelihoods.begin(), log_likelihoods.end());
  double sum = 0;
  double flat_sum = 0;
  Posterior p;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double likelihood = std::exp(log_likelihoods[i] - peak);
    sum += all[i].second * likelihood;
    flat_sum += likelihood;
    if (all[i].first == hypothesis) {
      p.of_hypothesis = all[i].second * likelihood;
      p.of_hypothesis_flat = likelihood;
    }
    if (all[i].first.kind == Class::other) p.of_other = all[i].second * likelihood;
  }
  p.of_hypothesis /= sum;
  p.of_hypothesis_flat /= flat_sum;
  p.of_other /= sum;
  return p;
}

}  // namespace plumb::investigator
