#pragma once

// A report: its document and its numbers, made once and written as Markdown, HTML, JSON and JUnit.

#include <string>
#include <vector>

#include "investigator/report_document.h"
#include "investigator/report_facts.h"

namespace plumb::investigator {

struct Report {
  Line title;
  Blocks head;  // the first screen: what a user notices, one pair of expected and got, then numbers
  Blocks environment;
  Blocks body;          // tables, questions
  Blocks status;        // the state of the work, folded
  std::string verdict;  // "not finished" before there is one
  Reproduction repro;
  HeatMap recall;
  std::vector<PosteriorTrace> suspicion;  // one a round that has one
  std::vector<LaunchEntry> launches;
};

Report make_report(const Case& c);

/// The parts, in the order of the document.
Line report_title(const Case& c);
Blocks report_head(const Case& c, const Reproduction& repro);
Blocks report_environment(const Case& c);
/// Failing trials by probe and variant, and where each trial of the case is counted.
Blocks report_probes(const Case& c);
/// One switch at a time, confirmation, what was ruled out.
Blocks report_round(const Case& c, const Round& round);
/// How far each measured variant is from the reference, with the floor; shares where many differences add up.
Blocks report_distance(const Case& c);
/// Tables of failing trials and of launches.
Blocks report_trials(const Case& c);

/// "27/46 (43–72 %)": failures, trials, 95 % interval.
std::string rate(Counts counts);
/// "1 round", "2 rounds".
std::string counted(std::size_t count, const std::string& what);

}  // namespace plumb::investigator
