#pragma once

// What `plumb rank --json` says of the switches of a deployment: how suspect each is before anything is launched.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "investigator/deployment.h"

namespace plumb::investigator {

/// The suspects of a ranking, matched to switches by their gates: an environment variable that a side sets, or a flag
/// among its args. A suspect whose gate names several switches (one for each role, or for each value) is shared evenly.
struct RankedSwitches {
  struct Suspect {
    std::string where;  // "kernels/moe.py:120 route_topk"
    std::string gate;   // "env MOE_FUSED", "flag --split-k"; empty: none
    double prior = 0;
  };
  struct Switch {
    double weight = 0;  // sum of the priors of its suspects
    std::vector<Suspect> suspects;
  };
  std::string text;  // the file
  std::string hash;
  std::vector<Switch> switches;    // in the order of Deployment::switches
  std::vector<Suspect> unmatched;  // most suspect first

  /// Weights of some switches, for GroupTest::Options::ranks; empty when none of them is suspect (a flat prior).
  std::vector<double> weights(const std::vector<std::size_t>& suspects) const;
};

/// Reads the output of `plumb rank --json`. Errors: no such document, a prior that is no number from 0 to 1, over
/// kMaxRankBytes.
Result<std::shared_ptr<const RankedSwitches>> rank_switches(std::string text, const std::string& file_name,
                                                            const Deployment& deployment);
inline constexpr std::size_t kMaxRankBytes = 64u << 20;

/// The prior of each switch that is turned between as deployed and reference, with where it comes from, and the
/// suspects that no switch turns: lines for a plan. "" without a ranking.
std::string describe_priors(const Deployment& deployment);
/// The same: [{"switch", "prior", "from": [{"where", "gate", "prior"}]}], and the unmatched suspects.
nlohmann::ordered_json priors_json(const Deployment& deployment);
nlohmann::ordered_json unmatched_json(const Deployment& deployment);

}  // namespace plumb::investigator
