#pragma once

// The parts of report.md; report.cpp puts them together.

#include <string>
#include <vector>

#include "investigator/reproduction.h"

namespace plumb::investigator {

/// Title and first screen: what a user notices, one pair of expected and got, then numbers.
std::string report_head(const Case& c, const Reproduction& repro);
std::string report_environment(const Case& c);
/// Failing trials by probe and variant, and where each trial of the case is counted.
std::string report_probes(const Case& c);
/// One switch at a time, confirmation, what was ruled out.
std::string report_round(const Case& c, const Round& round);
/// Tables of failing trials and of launches.
std::string report_trials(const Case& c);

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

/// "27/46 (43–72 %)": failures, trials, 95 % interval.
std::string rate(Counts counts);
/// "1 round", "2 rounds".
std::string counted(std::size_t count, const std::string& what);

}  // namespace plumb::investigator
