#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "investigator/environment.h"
#include "investigator/investigation.h"
#include "investigator/journal.h"
#include "investigator/plan.h"
#include "investigator/progress.h"
#include "investigator/trial.h"
#include "investigator/world.h"

namespace plumb::investigator {

class LivePage;

struct InvestigateOptions {
  std::filesystem::path case_dir;
  /// The text of the deployment file; copied into the case as deployment.toml.
  std::string deployment_toml;
  std::optional<std::uint64_t> seed;  // empty: from the operating system, or the case's when resuming
  bool resume = false;                // false: the case must not have a journal yet
  Limits limits;
  ProgressSink progress;  // may be empty
  /// What the deployment needs besides its own processes. Asked when a launch fails: an error of it is what failed
  /// then, no fault of the variant, and ends the investigation so that it can be resumed. May be empty.
  std::function<Result<void>()> surroundings = {};
  LivePage* live = nullptr;  // where the running investigation is shown, and at the end its report; may be null
};

struct Outcome {
  Findings findings;
  History history;
  std::uint64_t seed = 0;
};

/// The whole pipeline: ground, isolation, confirmation, report. Writes into the case folder deployment.toml,
/// environment.json, journal.sqlite, logs/, report.md, report.json, reproduce.sh and prompt-N.json; the folder is
/// locked meanwhile. A case without a recorded trial is begun anew, also with a corrected deployment file. Errors: the
/// folder cannot be used (in use by another process, a journal of something else), nothing to resume, or with another
/// seed, bad deployment, no variant launches or answers (the launch's message; the case can be resumed).
Result<Outcome> investigate(const Deployment& deployment, const InvestigateOptions& options);

/// The same in a given world, without case folder: asks `next_step`, runs it, writes the journal, until the end.
Result<Outcome> run_investigation(const Plan& plan, World& world, Journal& journal, const ProgressSink& progress,
                                  LivePage* live = nullptr);

/// The verdict in a few lines, for a terminal. `go_on`: the command that goes on after a budget; "" for none.
std::string summary(const Outcome& outcome, const std::string& go_on = {});

/// The command that goes on with a case that is not finished or whose budget was reached (then with twice as much of
/// it); a demo that reached its budget is over, so that a new one is named.
std::string go_on_command(const std::filesystem::path& case_dir, const Findings& findings, const Limits& limits);

/// Reads a case again: what its journal holds and what follows from it. Launches nothing.
struct Case {
  Plan plan;
  std::string deployment_toml;
  Outcome outcome;
  bool ended = false;
  Environment environment{};
  std::string go_on{};  // the command that goes on with it
};
Result<Case> read_case(const std::filesystem::path& case_dir, const Limits& limits);

/// Goes on with a case that was interrupted or stopped by a budget, from its own copy of the deployment file.
Result<Case> resume_case(const std::filesystem::path& case_dir, const Limits& limits, const ProgressSink& progress);

/// Writes report.md, report.json, reproduce.sh and its prompt from a case's journal alone.
Result<Case> report_case(const std::filesystem::path& case_dir, const Limits& limits);

/// Whether the folder holds a case that was begun.
bool has_journal(const std::filesystem::path& case_dir);

}  // namespace plumb::investigator
