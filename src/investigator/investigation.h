#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "investigator/additive.h"
#include "investigator/distance.h"
#include "investigator/history.h"
#include "investigator/posterior.h"

namespace plumb::investigator {

struct Limits {
  int max_restarts = 120;
  double max_minutes = 20;
  std::int64_t max_tokens = 0;  // prompt tokens; 0: no limit
};

/// All that decides what an investigation does, besides what it observes.
struct Plan {
  Deployment deployment;
  std::uint64_t seed = 0;
  Limits limits;
  std::vector<std::string> cells;  // of cells_of()
};

/// The launch the investigation needs next. A label that is open already: the same launch gets more trials.
struct Wanted {
  std::string label;
  Variant variant;
  std::vector<std::pair<ItemId, Wording>> items;
  std::string why;  // for people
  /// What the failures of its first `judged` items answer to `why`: `failing` with at least `threshold` of them, else
  /// `passing`. 0: nothing is asked.
  struct Judgement {
    int threshold = 0;
    std::size_t judged = 0;
    std::string failing{};
    std::string passing{};
  } judgement{};
  std::vector<std::pair<ScoreItem, Wording>> texts{};  // to be scored after the items
  /// It may be asked in the processes that run already, as long as these differ in nothing but what requests carry.
  bool shares = false;
};

struct Culprit {
  std::string switch_name;
  std::string side;  // "on" | "off"
  std::vector<std::string> processes;
  std::string word;  // "damage" | "over budget"
  bool operator==(const Culprit&) const = default;
};

struct Verdict {
  std::string verdict;  // clean | confirmed | suspected | unexplained | joint | inconclusive
  std::vector<Culprit> culprits;
  std::string klass = "none";  // none | base | or | and | other
  std::optional<double> posterior;
  std::optional<double> posterior_flat_prior;
  int floor_launches = 0;
  int search_launches = 0;
  int confirm_launches = 0;
  int turned = 0;  // variants that were asked in processes running already, for which nothing was launched
  int trials = 0;
  std::optional<double> trial_failure_rate_95;  // of the deployment as deployed
  std::optional<double> launch_failure_rate_95;
  std::vector<std::string> not_covered;

  int exit_code() const;  // 0 clean, 1 fault, 2 inconclusive
};

/// One row of the single-variable table.
struct SwitchRow {
  std::size_t index = 0;
  Counts cure;                // the failing variant with this switch at the passing variant's side
  Counts harm;                // the passing variant with this switch at the failing variant's side
  std::optional<bool> cures;  // empty: not tested, `note` says why
  std::optional<bool> harms;
  double posterior = 0;  // probability that it is among the culprits
  std::string note;
};

/// Two variants of which one should fail and the other pass, launched in turn.
struct Contrast {
  std::string name;
  Variant should_fail;
  Variant should_pass;
  int pairs = 0;
  int failed = 0;          // launches of should_fail that did
  int wrongly_failed = 0;  // launches of should_pass that failed
  double e_value = 1;
};

/// One symptom, from the cell that shows it to the confirmation.
struct Round {
  std::string cell;
  Variant bad;
  Variant good;
  int trials_per_launch = 0;
  int threshold = 0;     // a launch fails with at least so many failing trials
  bool replays = false;  // the trials are known failing prompts (only where A/A launches are equal to the bit)
  std::vector<SwitchRow> rows;
  Hypothesis hypothesis;
  std::vector<Contrast> contrasts;
  std::vector<std::string> checks;  // what else was checked, with outcome
  Posterior posterior;
  bool confirmed = false;
};

/// How equal repeated launches of one variant were.
struct Floor {
  int launches = 0;  // that share prompts with an earlier launch of their variant, and those
  int compared_replies = 0;
  int different_replies = 0;
  bool identical() const { return compared_replies > 0 && different_replies == 0; }
};

/// How far the launches of one variant are from the reference in log-probabilities (D, distance.h).
struct DistanceRow {
  Variant variant;
  bool repeated = false;  // the reference again: the floor
  int launches = 0;
  struct View {
    ScorePath path = ScorePath::scored;
    CacheState state = CacheState::cold;
    DistanceSize size{};   // of the first launch
    int hits = 0;          // texts that came from the prefix cache, as the server says
    int outside_list = 0;  // tokens taken for as probable as the last one listed
  };
  std::vector<View> views;
  int incomparable = 0;          // texts that are not tokenised as in the reference
  double e_farther = 1;          // that it is farther from the reference than the reference's own repeats
  std::optional<double> budget;  // the declared shift, where one switch alone is turned
  double e_over = 1;             // that prompts pass the budget (over_budget_e_value)
  std::string word;              // "floor" | "difference" | "over budget" | "" (nothing shown)
};

struct DistanceFindings {
  bool measured = false;
  std::string why_not;  // where it is not measured
  std::vector<DistanceRow> rows;
};

/// A switch that moves log-probabilities beyond its declared shift where it alone is turned.
struct OverBudget {
  std::size_t index = 0;
  double shift = 0;
  DistanceSize size{};  // of the first flip
  Contrast contrast{};  // launches of the flip and of the reference in turn; failing = over the budget
};

/// Damage that no single switch does: a sum of differences.
struct Joint {
  std::vector<std::size_t> members;
  std::vector<std::string> names;  // of the members
  std::vector<Share> shares;       // of the distance in the failing variant, by member
  AdditiveModel model;
  double dose_p = 1;  // that failing launches are so much farther away by chance
  int launches = 0;   // that the model is fitted to
  bool concluded = false;
};

/// A switch that stays as deployed in the reference, because plumb could not start it at its off side.
struct Unswitchable {
  std::size_t index = 0;
  std::vector<std::string> with;  // switches whose off sides it does not start together with; empty: see `alone`
  bool alone = false;             // not even when it is the only one at its off side
  std::string message;            // of the launch that ended
};

/// Everything an investigation concluded so far; grows step by step, also when it stops early.
struct Findings {
  std::optional<Wording> wording;
  Variant deployed;
  Variant reference;
  std::vector<Unswitchable> unswitchable;
  std::vector<Round> rounds;
  Floor floor;
  DistanceFindings distance{};
  std::vector<OverBudget> over_budget{};
  std::optional<Joint> joint{};
  std::vector<std::string> reasons;  // why the verdict is what it is
  std::vector<std::string> open_questions;
  std::string budget;      // "launches", "minutes" or "tokens": which was reached; empty: none
  std::string unmeasured;  // the launch or request whose failure ended the investigation; empty: none
  Verdict verdict;         // meaningful once the investigation has ended
};

struct NextStep {
  std::optional<Wanted> wanted;  // empty: the investigation has ended
  Findings findings;
};

/// What to do next: a pure function of plan and history, so that a resumed investigation ends as an uninterrupted one
/// would, and tests play thousands of worlds without a process.
NextStep next_step(const Plan& plan, const History& history);

/// What can be said of a history whose investigation has not ended: the verdict is inconclusive, its counts those so
/// far.
Findings findings_so_far(const Plan& plan, const History& history);

/// What shows that a history is not one of this plan, as "launch 3: …"; empty when nothing does.
std::optional<std::string> damage_of(const Plan& plan, const History& history);

/// Failures among the distinct, resolved trials of a cell in launches of `variant` whose label starts with `prefix`.
Counts count_trials(const History& history, const Variant& variant, std::string_view prefix, std::string_view cell);

}  // namespace plumb::investigator
