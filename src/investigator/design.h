#pragma once

#include <optional>

#include "investigator/history.h"

namespace plumb::investigator {

/// How many trials a launch needs, and from how many failures on it counts as failing.
struct Design {
  int trials = 0;
  int threshold = 0;
};

inline constexpr int kMaxTrialsPerLaunch = 48;

/// The smallest design with which a launch of the failing variant is taken for passing, and one of the passing variant
/// for failing, with at most 1 % each; rates are Beta(failures + 1/2, successes + 1/2) after what was seen. nullopt:
/// not within kMaxTrialsPerLaunch.
std::optional<Design> choose_design(Counts bad, Counts good);

}  // namespace plumb::investigator
