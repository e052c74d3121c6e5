#pragma once

#include <cstddef>
#include <vector>

#include "investigator/deployment.h"

namespace plumb::investigator {

/// Whether one launch of a variant showed the symptom.
struct LaunchOutcome {
  Variant variant;
  bool failed = false;
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
  double of_hypothesis_flat = 0;  // every hypothesis, `other` and `base` included, weighted alike
  double of_other = 0;
};

/// Probability of `hypothesis` given the outcomes, among: none, base, every any_of and all_of set of up to three of
/// `suspects` at their sides in `bad`, and other. Failure rates of launches when bad ~ Beta(4, 1/2), when good ~
/// Beta(1/2, 8), both integrated out; other: Beta(1/2, 1/2) for each variant. Prior: singles 0.5, sets of two 0.2, of
/// three 0.1 (each class shared evenly), none 0.1, base 0.05, other 0.05.
Posterior posterior(const std::vector<LaunchOutcome>& outcomes, const Variant& bad,
                    const std::vector<std::size_t>& suspects, const Hypothesis& hypothesis);

}  // namespace plumb::investigator
