#pragma once

// What a report counts: numbers of a case, from which its texts, tables, pictures and JSON are made.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "investigator/reproduction.h"

namespace plumb::investigator {

/// What a column of the table of probes shows.
struct Column {
  std::string name;
  Variant variant;
};
/// As deployed, reference, and the cured variant of each round.
std::vector<Column> columns(const Case& c);
/// Failures among the distinct resolved trials of a cell on a variant, in the wording of the investigation.
Counts counts_in_report(const Case& c, const Variant& variant, const std::string& cell);

/// Where the trials of a case are in the table of probes: all of them sum up to Verdict::trials.
struct TrialAccount {
  int shown = 0;     // counted in the table
  int repeated = 0;  // the same prompt again on the same variant
  int other_variants = 0;
  int other_wording = 0;  // asked to find the wording, not understood
  int weak = 0;           // of probes that are shown, not counted
  int unanswered = 0;     // infrastructure
};
TrialAccount account_of(const Case& c);

/// One row of the table of probes: failures for each column.
struct ProbeRow {
  std::string cell;
  bool weak = false;
  std::vector<Counts> counts;
  std::vector<std::optional<double>> gzip;  // of the weak probe
  struct Step {
    std::string name;  // "hit: partial"
    std::vector<Counts> counts;
  };
  std::vector<Step> steps;
};
std::vector<ProbeRow> probe_rows(const Case& c);

/// Questions answered by probe and prompt length: failures of trials[variant][probe][length].
struct HeatMap {
  std::vector<std::string> variants;
  std::vector<std::string> probes;
  std::vector<int> lengths;  // a column holds prompts of more tokens than the one before it and at most this many
  std::vector<std::vector<std::vector<Counts>>> counts;
};
/// Over the questions that the table of probes counts. Lengths are powers of two, at most kMaxHeatColumns of them: the
/// first holds all shorter prompts.
HeatMap heat_map(const Case& c);
inline constexpr std::size_t kMaxHeatColumns = 8;

/// A variant by what it differs in from the nearest column of the table of probes.
std::string variant_name(const Case& c, const Variant& variant);

/// One launch as a line of the log and as a bar of the timeline.
struct LaunchEntry {
  std::int64_t id = 0;
  std::string label;
  Variant variant;
  std::string bits;          // one digit a switch
  std::string variant_name;  // "as deployed", "reference, prefix_cache on"
  std::string phase;         // what the label begins with: "ground", "search", "confirm"...
  LaunchRecord::Status status = LaunchRecord::Status::open;
  int starts = 0;
  std::int64_t host = 0;  // the launch whose processes it shared; 0: none
  double ready_s = 0;
  int right = 0;
  int failing = 0;
  int trials = 0;
  double begin_s = 0;  // since the investigation began; where no trial says so, the end of the launch before
  double end_s = 0;
};
std::vector<LaunchEntry> launch_entries(const Case& c);

/// How the suspicion moved: after each launch that asked the round's probe, the probability of each suspect that its
/// side in the failing variant is among the culprits (GroupTest::marginals, flat prior).
struct PosteriorTrace {
  std::string cell;
  std::vector<std::string> switches;
  struct Point {
    std::int64_t launch = 0;
    bool failed = false;
    std::vector<double> probabilities;  // by switch
  };
  std::vector<Point> points;
};
/// Of a round, for the kMostTraced suspects that end highest; empty with more than GroupTest::kMostSuspects.
PosteriorTrace posterior_trace(const Case& c, const Round& round);
inline constexpr std::size_t kMostTraced = 5;

/// A failing question, as the report quotes it.
struct FailingStep {
  const LaunchRecord* launch;
  const TrialRecord* trial;
  const StepRecord* step;
};
std::vector<FailingStep> failing_steps(const Case& c);

/// The cell that the case is about: the first round's, else what fails most as deployed; "" when nothing fails.
std::string main_cell(const Case& c);
/// The column whose variant answered the prompt of the reproduction right; nullopt for none.
std::optional<Column> who_is_right(const Case& c, const Reproduction& repro);
/// Failing trials of the main cell (of all probes, where nothing fails) on each column.
std::vector<Counts> main_counts(const Case& c);
/// Whether a switch is no member of what the round found, and was turned both ways without effect or, where it was only
/// turned together with others, takes part with a probability of at most 1 %.
bool is_ruled_out(const Round& round, const SwitchRow& row);
/// Prompt tokens per second of all requests of a variant: what turning a switch costs. nullopt: none was answered.
std::optional<double> prompt_speed(const History& history, const Variant& variant);

}  // namespace plumb::investigator
