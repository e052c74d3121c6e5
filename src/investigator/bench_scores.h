#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/rng.h"
#include "investigator/bench_isolate.h"
#include "investigator/investigation.h"

namespace plumb::investigator {

// How simulated investigations are scored, whatever their trials are drawn from.

/// An investigation that was played, and what is right to say of its world.
struct Played {
  Verdict verdict;
  std::string right_verdict;
  std::set<std::pair<std::string, std::string>> planted;  // switch and side
  int culprits = 0;
};
/// Adds it to a score, whose means are sums until average().
void count_in(WorldScore& score, const Played& played);
void average(WorldScore& score);

/// Posterior from 0.5 to 0.8, to 0.95, to 1; empty.
std::vector<CalibrationBin> calibration_bins();
/// A search alone over `switches` suspects that are bad at on: the first time that the leading rule's posterior lies in
/// a bin counts there, with whether it is the truth. `fails`: whether a launch of a variant does.
void search_alone(std::vector<CalibrationBin>& bins, std::size_t switches, Rng& rng, const Hypothesis& truth,
                  const std::function<bool(const Variant&)>& fails);
/// Turns the bins' sums into means.
void finish(std::vector<CalibrationBin>& bins);

/// The same numbers as JSON arrays.
nlohmann::ordered_json methods_json(const std::vector<MethodScore>& methods);
nlohmann::ordered_json calibration_json(const std::vector<CalibrationBin>& bins);

/// Tables in Markdown; `turned`: with the variants that were asked in running processes.
std::string world_table(const std::vector<WorldScore>& worlds, bool turned);
std::string method_table(const std::vector<MethodScore>& methods);
std::string calibration_table(const std::vector<CalibrationBin>& bins);

}  // namespace plumb::investigator
