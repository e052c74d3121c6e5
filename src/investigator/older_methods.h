#pragma once

#include <functional>
#include <vector>

#include "base/rng.h"
#include "investigator/posterior.h"

namespace plumb::investigator {

// What `plumb bench isolate` compares with, and the worlds it draws for calibration.

/// Whether a launch of a variant fails.
using LaunchTester = std::function<bool(const Variant&)>;

struct OlderResult {
  std::vector<std::size_t> culprits;
  int launches = 0;
};

/// Turns each switch alone, from the failing variant to its passing side and from the passing variant to its failing
/// side, one launch each: what cures, or else what harms.
OlderResult one_at_a_time(const Variant& bad, const Variant& good, const LaunchTester& fails);

/// Delta debugging to a smallest set of switches at their failing sides that still fails, one launch a test. Source:
/// Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (algorithm ddmin).
OlderResult by_ddmin(const Variant& bad, const Variant& good, const LaunchTester& fails);

/// A rule drawn from the prior of GroupTest with all suspects bad at on, and its launch failure rates. Where no rule
/// holds (`other`), each variant has a rate of its own.
struct TruthDraw {
  Hypothesis rule;
  double bad_rate = 1;
  double good_rate = 0;
  std::uint64_t seed = 0;  // of the rates of `other`
  double rate_of(const Variant& variant) const;
};
TruthDraw draw_truth(Rng& rng, std::size_t switches);

}  // namespace plumb::investigator
