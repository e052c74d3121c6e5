#include "investigator/posterior.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "investigator/group_tables.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;

struct FreeRate {
  double a;
  double b;
};
constexpr FreeRate kFree{0.5, 0.5};

constexpr double kOneLiteral = 0.5;
constexpr double kPairs = 0.12;
constexpr double kThrees = 0.04;
constexpr double kNone = 0.06;
constexpr double kBase = 0.06;
constexpr double kOther = 0.06;

// Largest |failures - expected| of any suspect's side within one group of launches, in standard deviations squared.
double association(const std::vector<std::uint64_t>& variants, const std::vector<bool>& failed, std::size_t suspects) {
  const auto n = static_cast<double>(variants.size());
  const auto failures = static_cast<double>(std::count(failed.begin(), failed.end(), true));
  double largest = 0;
  for (std::size_t s = 0; s < suspects; ++s) {
    double on = 0;
    double both = 0;
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const bool side = (variants[i] >> s & 1) != 0;
      on += side ? 1 : 0;
      both += side && failed[i] ? 1 : 0;
    }
    const double variance = on * (n - on) * failures * (n - failures) / (n * n * (n - 1));
    if (variance <= 0) continue;
    const double off = both - on * failures / n;
    largest = std::max(largest, off * off / variance);
  }
  return largest;
}

}  // namespace

GroupTest::GroupTest(Options options) : options_(std::move(options)) {
  const std::size_t n = options_.suspects.size();
  CHECK(n <= kMostSuspects);
  CHECK(options_.ranks.empty() || options_.ranks.size() == n);
  double sum = 0;
  for (const double r : options_.ranks) sum += r;
  for (std::size_t i = 0; i < n; ++i) {
    const double flat = 1 / static_cast<double>(n);
    shares_.push_back(sum > 0 ? (options_.ranks[i] / sum + flat) / 2 : flat);
  }
  Rule base;
  base.constant = true;
  base.log_prior = base.log_prior_flat = std::log(kBase);
  Rule none = base;
  none.inverted = true;
  none.log_prior = none.log_prior_flat = std::log(kNone);
  rules_ = {base, none};
  add_sets(1, kOneLiteral, 0);
  add_sets(2, kPairs, kPairs);
  if (n <= kMostInThrees) add_sets(3, kThrees, kThrees);
  log_prior_other_ = std::log(kOther);
}

// Literals are numbered 2 s + (1 when at the other side than in `bad`).
void GroupTest::add_sets(int size, double share_or, double share_and) {
  const std::size_t n = options_.suspects.size();
  const std::size_t step = options_.both_sides && size < 3 ? 1 : 2;
  std::vector<std::vector<std::size_t>> sets;
  for (std::size_t a = 0; a < 2 * n; a += step) {
    if (size == 1) sets.push_back({a});
    for (std::size_t b = a + step; size > 1 && b < 2 * n; b += step) {
      if (b / 2 == a / 2) continue;
      if (size == 2) sets.push_back({a, b});
      for (std::size_t c = b + step; size > 2 && c < 2 * n; c += step) sets.push_back({a, b, c});
    }
  }
  double sum = 0;
  std::vector<double> products;
  for (const auto& set : sets) {
    double product = 1;
    for (const std::size_t literal : set) product *= shares_[literal / 2];
    products.push_back(product);
    sum += product;
  }
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const double share = products[i] / sum;
    const double flat = 1 / static_cast<double>(sets.size());
    add_rule(sets[i], true, share_or * share, share_or * flat);
    if (share_and > 0) add_rule(sets[i], false, share_and * share, share_and * flat);
  }
}

void GroupTest::add_rule(const std::vector<std::size_t>& literals, bool any, double share, double share_flat) {
  Rule rule;
  rule.inverted = any;
  for (const std::size_t literal : literals) {
    const std::size_t s = literal / 2;
    const bool side = options_.bad[options_.suspects[s]] != (literal % 2 == 1);
    rule.mask |= std::uint64_t{1} << s;
    if (side != any) rule.sides |= std::uint64_t{1} << s;
  }
  rule.log_prior = std::log(share);
  rule.log_prior_flat = std::log(share_flat);
  rules_.push_back(rule);
}

std::uint64_t GroupTest::mask_of(const Variant& variant) const {
  std::uint64_t mask = 0;
  for (std::size_t s = 0; s < options_.suspects.size(); ++s)
    if (variant[options_.suspects[s]]) mask |= std::uint64_t{1} << s;
  return mask;
}

void GroupTest::add(const LaunchOutcome& outcome) {
  if (outcomes_.size() >= kMostLaunchOutcomes) return;
  const Outcome added{mask_of(outcome.variant), outcome.failed, outcome.process};
  const Counts one{added.failed ? 1 : 0, 1};
  outcomes_.push_back(added);
  if (added.process == 0) {
    for (Rule& rule : rules_) (rule.calls_bad(added.variant) ? rule.bad : rule.good) += one;
    by_variant_[added.variant] += one;
    return;
  }
  for (Rule& rule : rules_) add_shared(rule, added);
  std::vector<Outcome>& before = shared_[added.process];
  // The same variant again in the same process is no second draw of its rate.
  const bool again = std::any_of(before.begin(), before.end(), [&](const Outcome& o) {
    return o.variant == added.variant && o.failed == added.failed;
  });
  if (!again) by_variant_[added.variant] += one;
  before.push_back(added);
}

// Of the variants asked in a process so far, those that the rule calls bad, or good.
Counts GroupTest::asked_in(std::int64_t process, const Rule& rule, bool called_bad) const {
  Counts c;
  if (const auto asked = shared_.find(process); asked != shared_.end())
    for (const Outcome& o : asked->second)
      if (rule.calls_bad(o.variant) == called_bad) c += {o.failed ? 1 : 0, 1};
  return c;
}

// What most showed is one launch; each of them but the first agrees or stands alone.
void GroupTest::add_shared(Rule& rule, const Outcome& outcome) const {
  const bool called_bad = rule.calls_bad(outcome.variant);
  const auto shows = [](Counts c) { return 2 * c.failures >= c.trials ? 1 : 0; };
  const auto log_within = [&](Counts c) {
    if (c.trials == 0) return 0.0;
    const int alone = std::min(c.failures, c.trials - c.failures);
    return alone * std::log(kAlone) + (c.trials - 1 - alone) * std::log1p(-kAlone);
  };
  const Counts before = asked_in(outcome.process, rule, called_bad);
  Counts after = before;
  after += {outcome.failed ? 1 : 0, 1};
  Counts& launches = called_bad ? rule.bad : rule.good;
  launches += before.trials == 0 ? Counts{shows(after), 1} : Counts{shows(after) - shows(before), 0};
  rule.log_alone += log_within(after) - log_within(before);
}

bool GroupTest::contrasted() const {
  bool shares = false;
  for (const auto& [process, asked] : shared_) {
    shares |= asked.size() > 1;
    if (std::any_of(asked.begin(), asked.end(), [&](const Outcome& o) { return o.failed != asked.front().failed; }))
      return true;
  }
  return !shares;
}

double GroupTest::log_likelihood(const Rule& rule) const {
  return bad_table().log_of(rule.bad) + good_table().log_of(rule.good) + rule.log_alone;
}

double GroupTest::log_likelihood_other() const {
  double sum = 0;
  for (const auto& [variant, c] : by_variant_) sum += log_beta_ratio(c.failures, c.trials, kFree.a, kFree.b);
  return sum;
}

std::vector<double> GroupTest::weights(bool flat) const {
  std::vector<double> w;
  w.reserve(rules_.size() + 1);
  for (const Rule& rule : rules_) w.push_back((flat ? rule.log_prior_flat : rule.log_prior) + log_likelihood(rule));
  w.push_back(log_prior_other_ + log_likelihood_other());
  const double peak = *std::max_element(w.begin(), w.end());
  double sum = 0;
  for (double& x : w) sum += x = std::exp(x - peak);
  for (double& x : w) x /= sum;
  return w;
}

GroupTest::Belief GroupTest::belief_of(const Rule& rule) const {
  Belief belief;
  Hypothesis& h = belief.hypothesis;
  h.kind = rule.constant ? (rule.inverted ? Class::none : Class::base) : rule.inverted ? Class::any_of : Class::all_of;
  for (std::size_t s = 0; s < options_.suspects.size(); ++s)
    if ((rule.mask >> s & 1) != 0) {
      h.members.push_back(options_.suspects[s]);
      belief.sides.push_back(((rule.sides >> s & 1) != 0) != rule.inverted);
    }
  return belief;
}

GroupTest::Belief GroupTest::best() const {
  const std::vector<double> w = weights(false);
  const auto at = static_cast<std::size_t>(std::max_element(w.begin(), w.end()) - w.begin());
  Belief belief;
  belief.hypothesis.kind = Class::other;
  if (at < rules_.size()) belief = belief_of(rules_[at]);
  belief.posterior = w[at];
  belief.posterior_flat = weights(true)[at];
  return belief;
}

const GroupTest::Rule* GroupTest::find(const Hypothesis& hypothesis, const std::vector<bool>& sides) const {
  CHECK(sides.size() == hypothesis.members.size());
  for (const Rule& rule : rules_) {
    if (static_cast<std::size_t>(std::popcount(rule.mask)) != hypothesis.members.size()) continue;
    const Belief belief = belief_of(rule);
    if (belief.hypothesis == hypothesis && belief.sides == sides) return &rule;
  }
  return nullptr;
}

Posterior GroupTest::of(const Hypothesis& hypothesis, const std::vector<bool>& sides) const {
  Posterior p;
  p.of_other = of_other();
  const Rule* rule = find(hypothesis, sides);
  if (rule == nullptr) return p;
  const auto at = static_cast<std::size_t>(rule - rules_.data());
  p.of_hypothesis = weights(false)[at];
  p.of_hypothesis_flat = weights(true)[at];
  p.predictive_p = predictive_check(hypothesis, sides);
  return p;
}

double GroupTest::of_other() const { return weights(false).back(); }

std::vector<double> GroupTest::marginals() const {
  std::vector<double> sums(options_.suspects.size(), 0.0);
  const std::vector<double> w = weights(false);
  for (std::size_t i = 0; i < rules_.size(); ++i)
    for (std::size_t s = 0; s < sums.size(); ++s)
      if ((rules_[i].mask >> s & 1) != 0) sums[s] += w[i];
  return sums;
}

double GroupTest::predictive_check(const Hypothesis& hypothesis, const std::vector<bool>& sides) const {
  constexpr int kPermutations = 499;
  const Rule* rule = find(hypothesis, sides);
  if (rule == nullptr) return 1;
  struct Alike {  // launches, or variants of one process, that the rule calls alike
    std::vector<std::uint64_t> variants;
    std::vector<bool> failed;
  };
  std::map<std::pair<bool, std::int64_t>, Alike> groups;
  for (const Outcome& o : outcomes_) {
    const auto asked = shared_.find(o.process);
    const bool shares = asked != shared_.end() && asked->second.size() > 1;
    Alike& group = groups[{rule->calls_bad(o.variant), shares ? o.process : 0}];
    group.variants.push_back(o.variant);
    group.failed.push_back(o.failed);
  }
  const auto statistic = [&] {
    double largest = 0;
    for (const auto& [key, group] : groups)
      if (group.variants.size() > 1)
        largest = std::max(largest, association(group.variants, group.failed, options_.suspects.size()));
    return largest;
  };
  const double observed = statistic();
  if (observed <= 0) return 1;
  Rng rng(outcomes_.size());
  int as_large = 0;
  for (int p = 0; p < kPermutations; ++p) {
    for (auto& [key, group] : groups)
      for (std::size_t i = group.failed.size(); i > 1; --i) {
        const auto j = static_cast<std::size_t>(rng.below(i));
        const bool swapped = group.failed[i - 1];
        group.failed[i - 1] = group.failed[j];
        group.failed[j] = swapped;
      }
    constexpr double kRounding = 1e-9;
    as_large += statistic() >= observed - kRounding ? 1 : 0;
  }
  return (1.0 + as_large) / (1.0 + kPermutations);
}

double GroupTest::bad_rate(const Hypothesis& hypothesis, const std::vector<bool>& sides) const {
  const Rule* rule = find(hypothesis, sides);
  return bad_table().next_fails(rule == nullptr ? Counts{} : rule->bad);
}

double GroupTest::bits_to(const Hypothesis& hypothesis, const std::vector<bool>& sides) const {
  const Rule* rule = find(hypothesis, sides);
  CHECK(rule != nullptr);
  double sum = std::exp(log_prior_other_);
  for (const Rule& r : rules_) sum += std::exp(r.log_prior_flat);
  return std::log2(sum) - rule->log_prior_flat / std::log(2.0);
}

}  // namespace plumb::investigator
