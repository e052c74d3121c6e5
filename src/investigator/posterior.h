#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "investigator/deployment.h"
#include "investigator/history.h"

namespace plumb::investigator {

/// Whether a variant showed the symptom: in a launch of its own, or asked in a running process together with others.
struct LaunchOutcome {
  Variant variant;
  bool failed = false;
  std::int64_t process = 0;  // outcomes of one number share a process; 0: this one shares with none
};

/// What may carry the symptom: nothing, every variant, any member of a set at its bad side (or), all members together
/// (and), or no such rule (other: a free failure rate for each variant, never a culprit).
struct Hypothesis {
  enum class Class { none, base, any_of, all_of, other } kind = Class::none;
  std::vector<std::size_t> members;  // indices of switches, ascending
  bool operator==(const Hypothesis&) const = default;
};

struct Posterior {
  double of_hypothesis = 0;
  double of_hypothesis_flat = 0;  // under the flat prior over switches
  double of_other = 0;
  double predictive_p = 1;  // of predictive_check()
};

/// Group testing over the sides of switches: which rule explains the launches so far, and which launch tells most.
///
/// A literal is a switch at one side. The rules: none; base; every literal; every pair and every three of them, as `or`
/// and as `and`; other. A launch that a rule calls bad fails with a rate of the rule's own, one that it calls good with
/// another; both are unknown and integrated out, so that a fault which shows in some launches only, and a launch that
/// fails for no reason, cost launches and do not mislead:
///   bad:   0.7 Beta(20, 1/2) + 0.3 Beta(2, 1)      good:  0.7 Beta(1/2, 30) + 0.3 Beta(1/2, 6)
///   other: Beta(1/2, 1/2), one for each variant.
/// Variants that were asked in one process share its launch: those that the rule calls bad fail all or none, and
/// together are one launch (the side that most of them took), and so are those that it calls good. One that differs
/// from them has a probability of kAlone: a fault that shows in some launches only does not name a rule by being asked
/// often in one of them. Prior of the classes: one literal 0.5, pairs 0.12 + 0.12 (or, and), three 0.04 + 0.04, none,
/// base and other 0.06 each; within a class a set weighs as the product of its switches' weights. docs/isolation.md has
/// the reasons.
class GroupTest {
 public:
  struct Options {
    std::vector<std::size_t> suspects;  // at most kMostSuspects
    Variant bad;                        // sides of the suspects that may be bad
    bool both_sides = false;            // either side of a suspect may be bad; in sets of three only those of `bad`
    std::vector<double> ranks;  // weight of each suspect, of any sum; empty: flat. Mixed half and half with flat
  };
  /// A set of literals, and how probable.
  struct Belief {
    Hypothesis hypothesis;
    std::vector<bool> sides;  // of the members: the bad ones
    double posterior = 0;
    double posterior_flat = 0;
  };
  static constexpr std::size_t kMostSuspects = 64;
  static constexpr std::size_t kMostInThrees = 30;  // with more suspects sets end at pairs
  static constexpr double kAlone = 0.02;            // a launch's verdict is wrong in at most 1 % either way

  explicit GroupTest(Options options);

  void add(const LaunchOutcome& outcome);
  /// The most probable rule; `other` counts as one.
  Belief best() const;
  /// What holds for a rule of these literals; zeros for one that is not among the rules.
  Posterior of(const Hypothesis& hypothesis, const std::vector<bool>& sides) const;
  double of_other() const;
  /// Probability that a suspect is among the literals, in the order of the suspects.
  std::vector<double> marginals() const;
  /// How probable launches as surprising as these are under a rule: within the launches that it calls bad, and within
  /// those it calls good, outcomes are exchangeable; so the largest association of any suspect's side with the outcome
  /// is compared with that of permuted outcomes, those of one process among themselves. Small: the rule misses
  /// something.
  double predictive_check(const Hypothesis& hypothesis, const std::vector<bool>& sides) const;
  /// Mean failure rate of launches that the rule calls bad.
  double bad_rate(const Hypothesis& hypothesis, const std::vector<bool>& sides) const;

  /// How the next launch is chosen.
  struct Choice {
    std::vector<Variant> starts;                                             // where the search begins; not empty
    std::function<std::optional<Variant>(Variant, std::size_t, bool)> turn;  // one switch turned, or not allowed
    std::function<double(const Variant&)> cost;                              // of a launch, in any unit
    std::vector<Variant> refused;                                            // known not to launch
    std::uint64_t seed = 0;
    std::int64_t process = 0;  // that the variant will be asked in; 0: in a launch of its own
  };
  /// The variant whose outcome is expected to tell most a second: the mutual information of outcome and rule, over the
  /// cost, climbed to by turning one switch at a time from several starts. nullopt: nothing tells anything.
  std::optional<Variant> next(const Choice& choice) const;
  /// Bits that a launch of this variant, or asking it in a running process, is expected to tell.
  double information(const Variant& variant, std::int64_t process = 0) const;
  /// Whether a process that several variants were asked in showed both outcomes, or there is none. Where each showed
  /// one alone, it may be bad, or good, as a whole.
  bool contrasted() const;

  /// log2 of 1 / prior of a rule, flat: the least bits that any strategy needs, on average.
  double bits_to(const Hypothesis& hypothesis, const std::vector<bool>& sides) const;

 private:
  // A rule that depends on suspects: fails where no side of `mask` differs from `sides` (and), or inverted: or.
  struct Rule {
    std::uint64_t mask = 0;
    std::uint64_t sides = 0;  // of the literals for `and`, their opposites for `or`
    bool inverted = false;
    bool constant = false;  // none (inverted) and base
    double log_prior = 0;
    double log_prior_flat = 0;
    Counts bad{};
    Counts good{};
    double log_alone = 0;  // of the outcomes within processes, given what each of these showed
    bool calls_bad(std::uint64_t variant) const { return (((variant ^ sides) & mask) == 0) != inverted; }
  };
  struct Outcome {
    std::uint64_t variant;
    bool failed;
    std::int64_t process;
  };
  struct Weighted {  // a rule as next() needs it: what it adds when its mask agrees, and when not
    std::uint64_t mask, sides;
    double fail_if_zero, fail_else, entropy_if_zero, entropy_else;
  };

  void add_sets(int size, double share_or, double share_and);
  void add_rule(const std::vector<std::size_t>& literals, bool any, double share, double share_flat);
  std::uint64_t mask_of(const Variant& variant) const;
  Counts asked_in(std::int64_t process, const Rule& rule, bool called_bad) const;
  void add_shared(Rule& rule, const Outcome& outcome) const;
  const Rule* find(const Hypothesis& hypothesis, const std::vector<bool>& sides) const;
  std::vector<double> weights(bool flat) const;  // of the rules, then of other; sum 1
  std::vector<Weighted> weighted(std::int64_t process) const;
  double information_of(const std::vector<Weighted>& rules, double of_other, std::uint64_t variant) const;
  double log_likelihood(const Rule& rule) const;
  double log_likelihood_other() const;
  Belief belief_of(const Rule& rule) const;

  Options options_;
  std::vector<double> shares_;  // of the suspects, sum 1
  std::vector<Rule> rules_;
  double log_prior_other_ = 0;
  std::vector<Outcome> outcomes_;
  std::map<std::int64_t, std::vector<Outcome>> shared_;  // of the processes that several variants may share
  std::map<std::uint64_t, Counts> by_variant_;
};

}  // namespace plumb::investigator
