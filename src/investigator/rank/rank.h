#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "investigator/inventory/inventory.h"

namespace plumb::investigator::rank {

/// DeepSeek-V4-Flash; `--layers` says another.
inline constexpr int kDefaultLayers = 43;

struct RankOptions {
  int layers = kDefaultLayers;
  std::vector<std::string> symptoms;  // probes that failed, by the names of `plumb probe --suite`; empty: not known
};

/// A hunk that may be the cause, with the reasoning.
struct Suspect {
  std::string file, hunk, function;
  inventory::Class cls = inventory::Class::other;
  int tier = 4;      // 1: look first … 4: only when nothing else is left
  double prior = 0;  // sums to 1 over the suspects
  std::string phase;
  // Worst case of one application: sum of unit roundoffs of rounded operands.
  std::optional<double> predicted_rel_error;
  std::optional<double> predicted_rel_error_depth;  // that times sqrt(layers), times layers where biased
  std::string reason;
  std::string probe;                        // which should fail if it is guilty
  std::vector<std::string> open_questions;  // each with the cheapest way to answer it
  std::optional<inventory::Gate> gate;
};

struct Ranking {
  std::vector<Suspect> suspects;  // most suspect first; equal ones by file and hunk
  int set_aside = 0;              // hunks of tests
  int layers = kDefaultLayers;
};

/// Ranks the hunks of an inventory. Deterministic: no clock, no randomness. A hunk counts by its strongest finding, the
/// others add a little. Errors: none.
Ranking rank(const inventory::Inventory& inventory, const RankOptions& options);

/// Names a symptom may have.
bool is_symptom(std::string_view name);

/// {"from", "to", "layers", "set_aside", "suspects": [{"file", "hunk", "class", "tier", "prior", "phase",
/// "predicted_rel_error", "predicted_rel_error_depth", "reason", "probe", "open_questions", "function", "gate"}]};
/// the errors are null where nothing is rounded.
nlohmann::ordered_json to_json(const inventory::Inventory& inventory, const Ranking& ranking);

/// Tiers 1 to 3 in full, tier 4 as a count.
std::string to_text(const Ranking& ranking);

/// Relative error of a value rounded to nearest, root mean square over significands spread evenly in logarithm:
/// spacing / sqrt(12) * sqrt(E[1/m^2]), m log-uniform on [1, 2): 0.849 of the unit roundoff as the study counts it.
inline constexpr double kRmsOfUnitRoundoff = 0.8494;

}  // namespace plumb::investigator::rank
