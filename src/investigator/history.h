#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "investigator/deployment.h"
#include "investigator/grade.h"
#include "investigator/probes.h"
#include "investigator/scores.h"

namespace plumb::investigator {

/// One request of a trial, as answered.
struct StepRecord {
  std::string step;
  std::string prompt_hash;  // xxh3, 128 bits, hex, of the request's prompt
  std::string expected;
  std::string text;  // raw reply
  std::string finish_reason;
  Grade grade = Grade::infrastructure;
  std::string detail;
  bool graded = false;
  bool wants_hit = false;
  std::optional<int> prompt_tokens;  // as the server counts
  int expected_tokens = 0;           // as the phantom's rule counts, or as dialled
  std::optional<int> cached_tokens;
  double seconds = 0;
  int padding = 0;          // words before the prompt that give it its length (dial.h); 0: none
  int dial_requests = 0;    // sent before this one, to find that number
  int dial_tokens = 0;      // of those
  bool superseded = false;  // asked again by the next step with more room to think, which counts instead
  std::string room{};       // how this one got more: "thinking budget doubled", "thinking off"; empty: it is no retry
  std::string undialled{};  // why the prompt has no exact length; empty: it has, or needs none
};

/// One probe on one launch of one variant with one seed.
struct TrialRecord {
  ItemId item;
  Wording wording = Wording::v4;
  std::vector<StepRecord> steps;
  Grade grade = Grade::infrastructure;  // a failing step's, else infrastructure if any, else right
  double at_s = 0;                      // since the investigation began

  std::int64_t tokens() const;
};
/// The grade of a trial from its steps.
Grade worst_grade(const std::vector<StepRecord>& steps);

struct LaunchRecord {
  enum class Status {
    open,        // may still get trials
    done,        // ended by us
    infeasible,  // this combination cannot run
    failed,      // could not be started or did not get ready, for another reason
    died         // ended while trials were still to do
  };
  std::int64_t id = 0;
  std::string label;  // "search/1/cure/prefix_cache": unique; names the purpose
  Variant variant;
  Status status = Status::open;
  std::string message;
  int starts = 0;         // above 1: interrupted and continued in a new process; 0: `host` has its processes
  std::int64_t host = 0;  // the launch in whose running processes this variant was asked; 0: it had its own
  double ready_s = 0;
  std::vector<TrialRecord> trials;
  std::vector<ScoreRecord> scores{};  // of fixed texts; empty: not asked

  /// The launch that started the processes it was asked in.
  std::int64_t process() const { return host == 0 ? id : host; }
};
std::string_view status_name(LaunchRecord::Status status);
Result<LaunchRecord::Status> parse_status(std::string_view name);

/// Everything observed so far, in order: what the journal holds. Decisions are functions of this alone.
struct History {
  std::vector<LaunchRecord> launches;
  double elapsed_s = 0;  // time spent, interruptions excluded

  const LaunchRecord* find(std::string_view label) const;
  int starts() const;
  std::int64_t tokens() const;
};

/// Failures among resolved trials.
struct Counts {
  int failures = 0;
  int trials = 0;
  Counts& operator+=(const Counts& other) {
    failures += other.failures;
    trials += other.trials;
    return *this;
  }
};

}  // namespace plumb::investigator
