#pragma once

// The parts of next_step(): one class, whose steps lie in replay*.cpp in the order they run in.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "investigator/design.h"
#include "investigator/investigation.h"
#include "investigator/probes.h"
#include "investigator/variants.h"

namespace plumb::investigator {

using Items = std::vector<std::pair<ItemId, Wording>>;

inline constexpr double kSure = 0.95;         // posterior of a named set, under the flat prior too
inline constexpr double kPredictiveP = 0.01;  // of the check that a rule misses nothing
inline constexpr int kAttempts = 2;           // a launch that fails for no reason of its variant is tried again once

/// Thrown where the history lacks a launch or trials of it: what to do next.
struct Pending {
  Wanted wanted;
};
/// Thrown where the history cannot be one of this plan.
struct Damaged {
  std::string what;
};
/// Thrown at the end of the investigation.
struct Stop {
  std::string verdict;
  std::string klass;
};

/// Straight-line code over a replayed history. want() returns what the journal already holds or ends the replay with
/// the launch that is missing; what happens next depends only on launches asked for earlier in the same replay.
class Replay {
 public:
  Replay(const Plan& plan, const History& history) : plan_(plan), history_(history) {
    findings_.deployed = as_deployed(plan.deployment);
    findings_.reference = reference_variant(plan.deployment);
  }

  NextStep run();

  Findings so_far();

  std::optional<std::string> damage();

 private:
  struct Seen {
    const LaunchRecord* launch;
    Items items;
  };

  // ---- launches: replay.cpp

  [[noreturn]] void stop(std::string verdict, std::string reason, std::string klass = "other");

  void ask_openly(const std::string& question);

  void check_budget(const std::string& label);

  static const TrialRecord* trial_of(const LaunchRecord& launch, const std::pair<ItemId, Wording>& item);

  // The launch with all of `items` answered, or one that ended before.
  const LaunchRecord& want_once(const std::string& label, const Variant& variant, const Items& items,
                                const std::string& why, const Wanted::Judgement& judgement = {}, bool shares = false);

  // Half of the trials resolved is the least a launch can be judged by.
  static bool usable(const LaunchRecord& launch, const Items& items);

  static std::string no_answer_of(const LaunchRecord& launch);

  // Ends because a launch that everything else rests on was not to be had.
  [[noreturn]] void stop_unmeasured();

  static bool all_resolved(const LaunchRecord& launch, const Items& items);

  // Same, tried again once when it failed for no fault of the variant, or died with something left to ask: what it
  // lacks would leave a gap in the coverage. Null: cannot be launched or judged.
  const LaunchRecord* want(const std::string& label, const Variant& variant, const Items& items, const std::string& why,
                           const Wanted::Judgement& judgement = {}, bool shares = false);

  static Counts count(const LaunchRecord& launch, const Items& items);

  Items items_of(const std::string& set, const std::string& cell, int size) const;

  Items whole_set(const std::string& set) const;

  // The first item of each cell in the first set: asked in several launches of a variant, to see what differs when
  // nothing was changed.
  Items repeated_items() const;

  // Distinct resolved trials of a cell over the launches of `variant` seen so far, those of the search left out: they
  // share their prompts with each other.
  Counts pooled(const Variant& variant, const std::string& cell) const;

  // ---- log-probabilities: replay_distance.cpp

  // Texts to be scored on a launch, without the paths that the server does not offer.
  std::vector<std::pair<ScoreItem, Wording>> texts() const;

  // Scores the fixed texts on a launch that was just asked for and still runs. Says nothing on one that ended early.
  void measure(const LaunchRecord& launch);

  // The first measured launch of a variant; null: there is none.
  const LaunchRecord* measured(const Variant& variant) const;

  // Whether there is a reference to compare with, and a floor.
  bool distance_known() const;

  // From the first launch of the reference.
  std::vector<TextDistance> texts_of(const LaunchRecord& launch) const;
  std::vector<PromptDistance> distance_of(const LaunchRecord& launch) const { return by_prompt(texts_of(launch)); }
  std::vector<PromptDistance> distance_floor() const;

  bool is_over(const LaunchRecord& launch, double shift) const;

  // Whether repeated launches were equal to the bit, replies and log-probabilities.
  bool scores_identical();

  // A launch for its log-probabilities, with a few prompts that tell about the floor too. Null: not to be had.
  const LaunchRecord* distance_launch(const std::string& label, const Variant& variant, const std::string& why);

  // (e) of a confirmation: a change that moves away from the reference is no cure.
  void must_approach_reference(int round, const std::vector<Variant>& cures);

  // The variants that a confirmation calls cured and whose distance tells something.
  std::vector<Variant> cures_to_measure(const Round& round) const;

  // Nothing failed: which switches are over their budget?
  void judge_differences();

  // Those of `switches` that move anything at all, by halving.
  void sweep(const std::vector<std::size_t>& switches, std::vector<std::size_t>& over, int& number);

  // The reference with one switch, or some, as deployed; nullopt: forbidden.
  std::optional<Variant> flipped(const std::vector<std::size_t>& switches) const;

  void confirm_over_budget(std::size_t index);

  void describe_distance();

  // ---- many small differences: replay_joint.cpp

  // The search ended without a rule: does the sum of differences explain it? Ends there if so.
  void judge_joint(int round);

  // A launch of the joint stage: whether it failed, and its distance.
  struct Dose {
    Variant variant;
    bool failed = false;
    std::vector<PromptDistance> d;
  };
  std::optional<Dose> dose(int round, const std::string& label, const Variant& variant, const std::string& why);

  std::optional<std::vector<Dose>> doses(int round, const std::vector<std::size_t>& suspects);

  // ---- ground: ground.cpp

  bool one_variant() const { return findings_.deployed == findings_.reference; }

  const LaunchRecord& need(const std::string& label, const Variant& variant, const Items& items,
                           const std::string& why);

  bool nothing_launched() const;

  // ---- a reference that launches: replay_reference.cpp

  // As deployed, with these switches at their off sides, as far as `requires` and kept_ allow.
  Variant with_off_sides(const std::vector<std::size_t>& off) const;

  // Launched once; false: that combination does not start.
  bool starts_with_off_sides(const std::vector<std::size_t>& off);

  // The index of the first of `order` with which `fixed` no longer starts, by halving: `starts` of them do, all do not.
  std::size_t first_that_fails(const std::vector<std::size_t>& fixed, const std::vector<std::size_t>& order,
                               std::size_t starts);

  // A smallest set of off sides that does not start, `last` among them; empty when it is larger than what is learnt.
  std::vector<std::size_t> conflict_of(std::size_t last, std::vector<std::size_t> before);

  // The most off sides that start, when all of them do not: off sides that stop the start are found by halving and left
  // as deployed. What does not start is learnt and never proposed again.
  void find_reference();

  std::vector<std::string> kept_names() const;

  bool is_known_infeasible(const Variant& variant) const;

  // Why nothing can be seen in a cell: as deployed and reference alike often have no room to answer, or do not
  // understand the operator's conversation. nullopt: it is used.
  std::optional<std::string> why_unusable(const std::string& cell) const;

  // ", or a switch that could not be turned: a, b"; "" without one.
  std::string or_unswitchable() const;

  void choose_wording();

  void ground();

  // Cells with so many failures in the first pair of launches that the second pair needs only the cheapest of them.
  std::vector<std::string> loud_cells() const;

  // Mean prompt tokens of a trial.
  double cost_of(const std::string& cell) const;

  // Compares raw replies of the same prompt between launches of one variant.
  void measure_floor();

  bool bit_identical();

  // ---- symptom: symptom.cpp

  struct Symptom {
    std::string cell;
    Variant bad;
    Variant good;
    Design design;
    double cost = 0;
  };

  // What the passing variant's failure rate is taken to be: its whole suite when it never failed, else this cell.
  Counts good_counts(const Variant& good, const std::string& cell) const;

  std::optional<Symptom> symptom_between(const Variant& bad, const Variant& good);

  // Prompts of a cell that failed on `bad` and never on `good`, both having answered.
  Items failing_items(const Variant& bad, const Variant& good, const std::string& cell) const;

  int failures_in(const Variant& variant) const;

  // Distinct resolved trials of a cell that got no answer for want of room.
  Counts no_answers(const Variant& variant, const std::string& cell) const;

  // Failures were seen but too few to judge by: many fresh trials of the cell where variants disagree most.
  void hunt();

  // Cells that most trials of both variants fail.
  std::vector<std::string> cells_failing_everywhere() const;

  // ---- the whole: isolate.cpp

  void investigate();

  std::optional<Symptom> find_symptom();

  // More launches as deployed until the bound of "clean" is met; ends there, or returns what they show after all.
  std::optional<Symptom> clean_or_not();

  Counts deployed_counts() const;

  // Every variant fails: perhaps one switch turned the other way does not.
  std::optional<Symptom> look_for_a_passing_variant();

  void isolate_all(Symptom symptom);

  // ---- isolation: isolate.cpp

  // Isolates and confirms; returns the symptom that remains in the cured variant, if any.
  std::optional<Symptom> isolate(int round, const Symptom& symptom);

  Items search_items(int round) const;

  // One more launch of the failing or the passing variant, with prompts that tell about the floor too.
  void once_more(int round, const std::string& name, const Variant& variant, const std::string& why);

  // Adds a few prompts of the ground, so that launches of the search tell about the floor too.
  Items with_repeated(Items items) const;

  // Group tests until one rule is settled, or inconclusive.
  void search(int round);

  // The sides at which the hypothesis's members are bad.
  std::vector<bool> bad_sides() const;

  // What one group search launches, and between which variants.
  struct Search {
    std::string prefix;
    Items items;
    int threshold = 0;
    Variant bad;
    Variant good;  // equal to bad where nothing passes
  };
  struct Question {
    std::string text;
    bool cures = false;  // whether passing is a yes
  };

  void begin_group_test(GroupTest::Options options);

  // By the ranking that the operator gave; empty: flat.
  std::vector<double> ranks_of(const std::vector<std::size_t>& suspects) const;

  // "s1 on or s4 on".
  std::string named(const GroupTest::Belief& belief) const;

  // Probable enough, under the flat prior too, and nothing in the launches that it does not explain.
  bool is_probable(const GroupTest::Belief& belief) const;

  // Probable, and not from launches alone that may be bad or good as a whole.
  bool is_settled(const GroupTest::Belief& belief) const;

  // Launches what tells most a second until a rule is settled; nullopt: none was.
  std::optional<GroupTest::Belief> group_search(const Search& search);

  struct NextTest {
    Variant variant;
    bool shares = false;  // the processes that run already
  };
  std::optional<NextTest> next_test(const Search& search, const std::string& label,
                                    const std::vector<Variant>& refused) const;

  // What tells most a second in a launch of its own (`in` null), or asked in the processes of a launch.
  std::optional<Variant> best_variant(const Search& search, const std::string& label,
                                      const std::vector<Variant>& refused, const LaunchRecord* in) const;

  // The launch whose processes still run when the next is wanted, if variants of it may be turned by requests.
  const LaunchRecord* running() const;

  // Of a launch of its own (`in` null), or of asking it in the processes of a launch; the usual launch is 1.
  double cost_of_test(const Variant& variant, const LaunchRecord* in) const;

  // Whether requests turn some switches of servers that we start.
  bool can_share() const;

  Question question(const Search& search, const Variant& variant) const;

  // The table of single switches, from the launches that turned one alone and from the posterior.
  void fill_rows(int round);

  // ---- confirmation: confirm.cpp

  Variant turned_all(Variant variant, const std::vector<std::size_t>& members, const Variant& sides) const;

  static std::vector<std::size_t> without(std::vector<std::size_t> members, std::size_t s);

  // One launch on prompts of its own; failing = the symptom shows.
  bool confirm_launch(int round, const std::string& name, int index, const Variant& variant, const std::string& why);

  std::string klass() const;

  void confirm(int round);

  // Outcomes of this round's launches, and of those before the search that asked the same cell.
  std::vector<LaunchOutcome> all_outcomes() const;

  // Outcomes of the launches before the search that asked enough trials of a cell.
  std::vector<LaunchOutcome> outcomes_before(const std::string& cell, const Design& design) const;

  // Launches of a failing variant after which not having seen it fail means something.
  int attempts() const;

  void contrast(int round, bool identical, const std::string& name, const Variant& should_fail,
                const Variant& should_pass);

  void must_fail(int round, const std::string& id, const Variant& variant, const std::string& what,
                 const std::string& why = {});

  void must_pass(int round, const std::string& id, const Variant& variant, const std::string& what);

  // Restarting with an innocent switch turned must not cure.
  void sham(int round, const Variant& cured);

  std::string most_failing_cell(const Variant& variant) const;

  // The full suite on the cured variant: what still fails there has another cause.
  std::optional<Symptom> remaining_symptom(int round);

  // ---- the end: conclude.cpp

  void check_coverage();

  // A request without a reply comes without numbers too, which says nothing about those of the server.
  static bool answered(const StepRecord& step) { return step.grade != Grade::infrastructure; }

  // Whether any variant answered a trial of the cell.
  bool asked_anywhere(const std::string& cell) const;

  // Whether every step that should find the prefix cache warm did, as deployed.
  bool hits_reported() const;

  // Why prompts of the cell are not as long as meant.
  std::optional<std::string> lengths_differ(const std::string& cell) const;

  std::optional<double> ratio(const Variant& variant, const std::string& cell) const;

  bool weak_check_failed() const;

  void conclude(const std::string& word, const std::string& stop_class);

  bool launch_failed(const LaunchRecord& launch) const;

  void name_culprits();

  const Plan& plan_;
  const History& history_;
  Findings findings_;
  Round* current_ = nullptr;
  std::vector<Seen> seen_;
  std::map<const LaunchRecord*, std::set<std::tuple<std::string, std::uint64_t, Wording>>> asked_;
  Wanted last_wanted_;                         // that want_once() returned
  std::vector<const LaunchRecord*> measured_;  // in the order they were
  std::set<const LaunchRecord*> scored_;       // that texts were asked of
  std::vector<Variant> cures_;                 // whose distance is to be measured
  std::vector<LaunchOutcome> outcomes_;
  std::optional<GroupTest> test_;
  std::vector<std::size_t> suspects_;      // of test_
  std::optional<GroupTest::Belief> base_;  // every variant fails
  bool trusting_ = true;                   // group tests in the history are taken as chosen
  std::vector<std::string> not_covered_;
  std::set<const LaunchRecord*> counted_;
  std::string last_failure_;
  std::string reference_label_;
  std::optional<std::size_t> floor_after_;  // how many of seen_ the floor was measured from
  Items replay_items_;
  std::map<Variant, bool> starts_;                    // of find_reference(): whether a variant starts
  std::vector<std::size_t> kept_;                     // switches that stay as deployed in the reference
  std::vector<std::vector<std::size_t>> infeasible_;  // sets that do not start when all are turned from deployed
  int fresh_items_ = 0;
};

}  // namespace plumb::investigator
