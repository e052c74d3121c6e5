#pragma once

#include <cstddef>
#include <vector>

#include "investigator/history.h"

namespace plumb::investigator {

inline constexpr int kMostLaunchOutcomes = 250;  // that a group test counts

/// log of the probability of one sequence of launch outcomes whose rate is unknown: a mixture of two Beta
/// distributions, integrated. Kept for all counts, because thousands of rules share them.
class SequenceTable {
 public:
  struct Beta {
    double a;
    double b;
  };
  SequenceTable(Beta steady, Beta flaky);
  double log_of(Counts c) const { return log_[at(c)]; }
  /// Probability that the next launch fails.
  double next_fails(Counts c) const;

 private:
  static constexpr int kKept = kMostLaunchOutcomes + 2;
  static std::size_t at(Counts c);
  std::vector<double> log_;
};

/// Launches that a rule calls bad: 0.7 Beta(20, 1/2) + 0.3 Beta(2, 1).
const SequenceTable& bad_table();
/// Launches that a rule calls good: 0.7 Beta(1/2, 30) + 0.3 Beta(1/2, 6).
const SequenceTable& good_table();

}  // namespace plumb::investigator
