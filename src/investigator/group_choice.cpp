// GroupTest::next(): the launch that tells most a second.

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "investigator/group_tables.h"
#include "investigator/posterior.h"

namespace plumb::investigator {
namespace {

constexpr double kNegligible = 1e-7;  // a rule of so little weight does not change what is chosen
constexpr double kLeastBits = 1e-4;
constexpr int kRandomStarts = 3;
constexpr int kSweeps = 4;

double entropy_bits(double p) {
  if (p <= 0 || p >= 1) return 0;
  return -(p * std::log2(p) + (1 - p) * std::log2(1 - p));
}

}  // namespace

std::vector<GroupTest::Weighted> GroupTest::weighted(std::int64_t process) const {
  const std::vector<double> w = weights(false);
  std::vector<Weighted> all;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (w[i] < kNegligible) continue;
    const Rule& rule = rules_[i];
    // What others showed in that process, this one shows too.
    const auto fails = [&](bool called_bad) {
      const Counts asked = process == 0 ? Counts{} : asked_in(process, rule, called_bad);
      if (asked.trials > 0) return 2 * asked.failures >= asked.trials ? 1 - kAlone : kAlone;
      return called_bad ? bad_table().next_fails(rule.bad) : good_table().next_fails(rule.good);
    };
    const double bad = fails(true);
    const double good = fails(false);
    const double zero = rule.inverted ? good : bad;
    const double other = rule.inverted ? bad : good;
    all.push_back(
        {rule.mask, rule.sides, w[i] * zero, w[i] * other, w[i] * entropy_bits(zero), w[i] * entropy_bits(other)});
  }
  return all;
}

// `other` knows of a variant only what its own launches said.
double GroupTest::information_of(const std::vector<Weighted>& rules, double of_other, std::uint64_t variant) const {
  double fails = 0;
  double entropy = 0;
  for (const Weighted& rule : rules) {
    const bool zero = ((variant ^ rule.sides) & rule.mask) == 0;
    fails += zero ? rule.fail_if_zero : rule.fail_else;
    entropy += zero ? rule.entropy_if_zero : rule.entropy_else;
  }
  const auto seen = by_variant_.find(variant);
  const Counts c = seen == by_variant_.end() ? Counts{} : seen->second;
  const double by_other = (c.failures + 0.5) / (c.trials + 1.0);
  return entropy_bits(fails + of_other * by_other) - entropy - of_other * entropy_bits(by_other);
}

double GroupTest::information(const Variant& variant, std::int64_t process) const {
  return information_of(weighted(process), of_other(), mask_of(variant));
}

std::optional<Variant> GroupTest::next(const Choice& choice) const {
  CHECK(!choice.starts.empty());
  const std::vector<Weighted> rules = weighted(choice.process);
  const double other = of_other();
  const auto score = [&](const Variant& v) { return information_of(rules, other, mask_of(v)) / choice.cost(v); };
  const auto refused = [&](const Variant& v) {
    return std::find(choice.refused.begin(), choice.refused.end(), v) != choice.refused.end();
  };
  std::optional<Variant> best;
  double most = 0;
  const auto consider = [&](const Variant& v, double value) {
    if (value <= most || refused(v)) return;
    most = value;
    best = v;
  };
  Rng rng(choice.seed);
  std::vector<Variant> starts = choice.starts;
  for (int i = 0; i < kRandomStarts; ++i) {
    Variant v = choice.starts[static_cast<std::size_t>(i) % choice.starts.size()];
    for (const std::size_t s : options_.suspects)
      if (rng.below(2) == 1)
        if (auto turned = choice.turn(v, s, !v[s])) v = *turned;
    starts.push_back(v);
  }
  for (Variant v : starts) {
    double here = score(v);
    consider(v, here);
    bool climbed = true;
    for (int sweep = 0; sweep < kSweeps && climbed; ++sweep) {
      climbed = false;
      for (const std::size_t s : options_.suspects) {
        const auto turned = choice.turn(v, s, !v[s]);
        if (!turned) continue;
        const double there = score(*turned);
        consider(*turned, there);
        if (there <= here) continue;
        v = *turned;
        here = there;
        climbed = true;
      }
    }
  }
  if (best && information_of(rules, other, mask_of(*best)) < kLeastBits) return std::nullopt;
  return best;
}

}  // namespace plumb::investigator
