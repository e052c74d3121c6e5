#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  std::vector<int> lengths;          // of the needle probe; empty: its own
  int trials = 8;                    // a cell
  int in_flight = 0;                 // trials at a time; 0: max_in_flight of the deployment, 1 of a URL
  std::string key_env;               // of running servers: the variable that holds their key
  std::optional<Wording> wording{};  // empty: the first one that is understood
  std::uint64_t seed = 1;
  ProgressSink progress;
};

struct ProbeTarget {
  std::string name;
  std::optional<Wording> wording;  // empty: no wording is understood
  std::vector<TrialRecord> trials;
};

inline constexpr std::size_t kShownFailures = 3;

struct ProbeReport {
  std::vector<std::string> cells;
  std::vector<ProbeTarget> targets;
  std::vector<std::string> not_covered;
  std::string next;  // what to do when something failed; "" for nothing

  int failures() const;
  int exit_code() const;  // 1 when a trial failed, else 2 when something was not covered, else 0
  /// What failed first: kShownFailures a target and probe.
  struct Failure {
    std::string cell;
    std::string step;
    std::uint64_t seed = 0;
    std::string expected;
    std::string got;
    std::string grade;  // "wrong: one character off"
  };
  std::vector<Failure> first_failures(const ProbeTarget& target, const std::string& cell) const;
  /// The same prompts of a probe at both of two targets; empty without two, or where they understand other wordings.
  struct Comparison {
    std::string cell;
    int prompts = 0;  // answered by both
    int only_first_fails = 0;
    int only_second_fails = 0;
    int both_fail = 0;
  };
  std::vector<Comparison> comparison() const;
  /// All cells of the comparison together, as a paired anytime-valid test (paired.h): it may be looked at after any
  /// number of trials, and repeated with more.
  struct Difference {
    int prompts = 0;
    int only_first_fails = 0;
    int only_second_fails = 0;
    double e_value = 1;
    std::string word() const;      // "B is worse", "B may be worse", "no difference shown", "not compared"
    std::string sentence() const;  // with the counts, and what is excluded
  };
  Difference difference() const;

  /// For a terminal: right answers, first failures, the comparison of two targets, what to do next.
  std::string table() const;
  std::string json() const;
  std::string junit() const;

 private:
  std::string comparison_table() const;
};

Result<ProbeReport> run_probes(const ProbeOptions& options);

/// Failures among the resolved trials of a cell in the target's wording.
Counts counts_of(const ProbeTarget& target, const std::string& cell);
/// Whether the cell's probe is shown and never counted.
bool is_weak(const std::string& cell);

/// Probes one world that is running already.
ProbeTarget probe_world(World& world, const std::string& name, const std::vector<std::string>& cells,
                        const ProbeOptions& options, const Shape& shape);
/// The same through several connections at a time. The prompts, their order in the result and everything else but the
/// times do not depend on how many. `connect` makes one connection; each is used by one thread.
ProbeTarget probe_connections(const std::function<std::unique_ptr<World>()>& connect, int connections,
                              const std::string& name, const std::vector<std::string>& cells,
                              const ProbeOptions& options, const Shape& shape);
/// The first reply of a target that answered no trial (no connection, a time-out, 4xx or 5xx); empty when it answered
/// one.
std::string refusal_of(const ProbeTarget& target);
/// What a target's trials leave open: cells without a resolved trial, prefix-cache hits that did not happen.
std::vector<std::string> not_covered_by(const ProbeTarget& target, const std::vector<std::string>& cells);

}  // namespace plumb::investigator
