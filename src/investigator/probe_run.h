#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "investigator/investigate.h"

namespace plumb::investigator {

/// Context-fidelity probes alone, without isolation: of running endpoints, or of a deployment as deployed.
struct ProbeOptions {
  std::vector<std::string> urls;  // one or two running servers; empty: `deployment` is launched
  std::optional<Deployment> deployment;
  std::filesystem::path log_folder;  // of launched processes
  std::string suite = "all";
  std::vector<int> lengths;  // of the needle probe; empty: its own
  int trials = 8;            // a cell
  std::uint64_t seed = 1;
  ProgressSink progress;
};

struct ProbeTarget {
  std::string name;
  std::optional<Wording> wording;  // empty: no wording is understood
  std::vector<TrialRecord> trials;
};

struct ProbeReport {
  std::vector<std::string> cells;
  std::vector<ProbeTarget> targets;
  std::vector<std::string> not_covered;

  int failures() const;
  int exit_code() const;  // 1 when a trial failed, else 2 when something was not covered, else 0
  std::string table() const;
  std::string json() const;
  std::string junit() const;
};

Result<ProbeReport> run_probes(const ProbeOptions& options);

/// Probes one world that is running already.
ProbeTarget probe_world(World& world, const std::string& name, const std::vector<std::string>& cells,
                        const ProbeOptions& options, const Shape& shape);
/// The first reply of a target that answered no trial (no connection, a time-out, 4xx or 5xx); empty when it answered
/// one.
std::string refusal_of(const ProbeTarget& target);
/// What a target's trials leave open: cells without a resolved trial, prefix-cache hits that did not happen.
std::vector<std::string> not_covered_by(const ProbeTarget& target, const std::vector<std::string>& cells);

}  // namespace plumb::investigator
