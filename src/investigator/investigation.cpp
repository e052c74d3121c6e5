#include "investigator/investigation.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "base/check.h"
#include "investigator/design.h"
#include "investigator/statistics.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Status = LaunchRecord::Status;
using Items = std::vector<std::pair<ItemId, Wording>>;
using Class = Hypothesis::Class;
using Judgement = Wanted::Judgement;

constexpr int kWordingTrials = 10;
constexpr int kWordingMisses = 1;  // rate >= 0.9
constexpr int kHuntTrials = 40;    // fresh trials of one cell when ground saw failures too rare to judge
constexpr int kRestTrials = 12;    // of a cell that still failed in the cured variant
constexpr int kMaxReplays = 8;
constexpr int kMinReplays = 3;
constexpr double kSymptomP = 0.01;  // Fisher, per cell; what passes is confirmed on fresh launches
constexpr int kMaxRounds = 3;
constexpr int kMaxMembers = 3;
constexpr int kRepeatsWhenFlaky = 3;
constexpr int kMaxPairs = 16;    // of launches in a contrast
constexpr double kEnough = 100;  // e-value
constexpr double kHopeless = 0.05;
constexpr int kPairsWhenIdentical = 2;
constexpr int kIdenticalLaunches = 5;
constexpr double kCleanRate = 0.05;
constexpr int kMaxCleanSets = 5;    // sets of trials tried to meet the bound
constexpr double kWeakRatio = 0.5;  // repetition fails below this part of the reference's ratio
constexpr int kAttempts = 2;        // a launch that fails for no reason of its variant is tried again once

struct Pending {
  Wanted wanted;
};
struct Damaged {
  std::string what;
};
struct Stop {
  std::string verdict;
  std::string klass;
};

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// Trials of a cell in one set of the ground: few where prompts are long.
int set_size(const std::string& cell) {
  const std::string name = cell.substr(0, cell.find('@'));
  if (name == "short") return 6;
  if (name == "turns" || name == "hit") return 3;
  if (name == "repetition") return 1;
  if (name != "needle") return 4;
  const int length = std::atoi(cell.c_str() + cell.find('@') + 1);  // NOLINT: cells_of() made it
  return length <= 256 ? 5 : length <= 512 ? 4 : 3;
}

bool is_weak(const std::string& cell) {
  const auto probe = probe_of(cell);
  CHECK(probe.has_value());
  return (*probe)->weak;
}

// Straight-line code over a replayed history. want() returns what the journal already holds or ends the replay with the
// launch that is missing; what happens next depends only on launches asked for earlier in the same replay.
class Replay {
 public:
  Replay(const Plan& plan, const History& history) : plan_(plan), history_(history) {
    findings_.deployed = as_deployed(plan.deployment);
    findings_.reference = reference_variant(plan.deployment);
  }

  NextStep run() {
    NextStep next;
    try {
      investigate();
    } catch (const Pending& pending) {
      next.wanted = pending.wanted;
    } catch (const Stop& stop) {
      conclude(stop.verdict, stop.klass);
    }
    next.findings = std::move(findings_);
    return next;
  }

  Findings so_far() {
    try {
      investigate();
    } catch (const Pending&) {
      conclude("inconclusive", "none");
    } catch (const Stop& stop) {
      conclude(stop.verdict, stop.klass);
    }
    return std::move(findings_);
  }

  std::optional<std::string> damage() {
    for (const LaunchRecord& l : history_.launches)
      if (l.variant.size() != plan_.deployment.switches.size())
        return fmt::format("launch {}: its variant has {} sides, the deployment {} switches", l.id, l.variant.size(),
                           plan_.deployment.switches.size());
    try {
      investigate();
    } catch (const Pending&) {
    } catch (const Stop&) {
    } catch (const Damaged& damaged) {
      return damaged.what;
    }
    for (const LaunchRecord& l : history_.launches) {
      const auto asked = asked_.find(&l);
      if (asked == asked_.end()) return fmt::format("launch {}: nothing asks for a launch \"{}\" here", l.id, l.label);
      for (const TrialRecord& t : l.trials)
        if (!asked->second.contains({t.item.cell, t.item.seed, t.wording}))
          return fmt::format("launch {}: nothing asks for its trial {} with seed {}", l.id, t.item.cell, t.item.seed);
    }
    return std::nullopt;
  }

 private:
  struct Seen {
    const LaunchRecord* launch;
    Items items;
  };

  // ---- launches
  // -------------------------------------------------------------------------------------------------------

  [[noreturn]] void stop(std::string verdict, std::string reason, std::string klass = "other") {
    findings_.reasons.push_back(std::move(reason));
    throw Stop{std::move(verdict), std::move(klass)};
  }

  void ask_openly(const std::string& question) {
    auto& all = findings_.open_questions;
    if (std::find(all.begin(), all.end(), question) == all.end()) all.push_back(question);
  }

  void check_budget(const std::string& label) {
    const Limits& l = plan_.limits;
    std::string reached;
    const bool fresh = history_.find(label) == nullptr;
    const auto reach = [&](const char* unit, const auto& most) {
      findings_.budget = unit;
      reached = fmt::format("{} {}", most, unit);
    };
    if (fresh && history_.starts() >= l.max_restarts) reach("launches", l.max_restarts);
    if (history_.elapsed_s >= l.max_minutes * 60) reach("minutes", l.max_minutes);
    if (l.max_tokens > 0 && history_.tokens() >= l.max_tokens) reach("tokens", l.max_tokens);
    if (reached.empty()) return;
    const bool suspect = !findings_.rounds.empty() && !findings_.rounds.back().hypothesis.members.empty();
    stop(suspect ? "suspected" : "inconclusive", fmt::format("the budget of {} was reached before {}", reached, label));
  }

  static const TrialRecord* trial_of(const LaunchRecord& launch, const std::pair<ItemId, Wording>& item) {
    for (const TrialRecord& t : launch.trials)
      if (t.item == item.first && t.wording == item.second) return &t;
    return nullptr;
  }

  // The launch with all of `items` answered, or one that ended before.
  const LaunchRecord& want_once(const std::string& label, const Variant& variant, const Items& items,
                                const std::string& why, const Judgement& judgement = {}) {
    const LaunchRecord* launch = history_.find(label);
    if (launch != nullptr) {
      auto& asked = asked_[launch];
      for (const auto& [item, wording] : items) asked.insert({item.cell, item.seed, wording});
      if (launch->variant != variant)
        throw Damaged{fmt::format("launch {}: a launch \"{}\" runs another variant", launch->id, label)};
    }
    const bool complete = launch != nullptr && std::all_of(items.begin(), items.end(), [&](const auto& item) {
                            return trial_of(*launch, item) != nullptr;
                          });
    if (launch == nullptr || (!complete && launch->status == Status::open)) {
      if (launch != nullptr && launch != &history_.launches.back())
        throw Damaged{fmt::format("launch {}: it lacks trials, but is neither ended nor the last", launch->id)};
      check_budget(label);
      throw Pending{{label, variant, items, why, judgement}};
    }
    if (!complete && launch->status == Status::done)
      throw Damaged{fmt::format("launch {}: it ended as done, but lacks trials", launch->id)};
    seen_.push_back({launch, items});
    return *launch;
  }

  // Half of the trials resolved is the least a launch can be judged by.
  static bool usable(const LaunchRecord& launch, const Items& items) {
    if (launch.status == Status::failed || launch.status == Status::infeasible) return false;
    std::size_t resolved = 0;
    for (const auto& item : items)
      if (const TrialRecord* t = trial_of(launch, item)) resolved += t->grade != Grade::infrastructure ? 1 : 0;
    return 2 * resolved >= items.size();
  }

  static std::string no_answer_of(const LaunchRecord& launch) {
    for (const TrialRecord& t : launch.trials)
      for (const StepRecord& s : t.steps)
        if (s.grade == Grade::infrastructure) return ": " + (s.detail.empty() ? s.text : s.detail);
    return "";
  }

  // Ends because a launch that everything else rests on was not to be had.
  [[noreturn]] void stop_unmeasured() {
    findings_.unmeasured = last_failure_;
    stop("inconclusive", "could not be measured: " + last_failure_);
  }

  static bool all_resolved(const LaunchRecord& launch, const Items& items) {
    return std::all_of(items.begin(), items.end(), [&](const auto& item) {
      const TrialRecord* t = trial_of(launch, item);
      return t != nullptr && t->grade != Grade::infrastructure;
    });
  }

  // Same, tried again once when it failed for no fault of the variant, or died with something left to ask: what it
  // lacks would leave a gap in the coverage. Null: cannot be launched or judged.
  const LaunchRecord* want(const std::string& label, const Variant& variant, const Items& items, const std::string& why,
                           const Judgement& judgement = {}) {
    const LaunchRecord* best = nullptr;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
      const std::string name = attempt == 1 ? label : fmt::format("{}/retry", label);
      // Earlier versions took such a launch as it was: a history that went on without another try is left so.
      if (best != nullptr && history_.find(name) == nullptr && best != &history_.launches.back()) break;
      const LaunchRecord& launch = want_once(name, variant, items, why, judgement);
      if (usable(launch, items)) {
        best = &launch;
        if (launch.status != Status::died || all_resolved(launch, items)) break;
        continue;
      }
      last_failure_ = fmt::format("{}: {}{}", describe(plan_.deployment, variant), status_name(launch.status),
                                  launch.message.empty() ? no_answer_of(launch) : ": " + launch.message);
      if (launch.status == Status::infeasible) break;
    }
    return best;
  }

  static Counts count(const LaunchRecord& launch, const Items& items) {
    Counts c;
    for (const auto& item : items)
      if (const TrialRecord* t = trial_of(launch, item); t != nullptr && t->grade != Grade::infrastructure)
        c += {is_failure(t->grade) ? 1 : 0, 1};
    return c;
  }

  Items items_of(const std::string& set, const std::string& cell, int size) const {
    Items items;
    for (int i = 0; i < size; ++i)
      items.push_back({{cell, derive_seed(plan_.seed, fmt::format("{}/{}/{}", set, cell, i))}, *findings_.wording});
    return items;
  }

  Items whole_set(const std::string& set) const {
    Items items;
    for (const std::string& cell : plan_.cells) {
      if (is_weak(cell)) continue;
      for (auto& item : items_of(set, cell, set_size(cell))) items.push_back(std::move(item));
    }
    return items;
  }

  // The first item of each cell in the first set: asked in several launches of a variant, to see what differs when
  // nothing was changed.
  Items repeated_items() const {
    Items items;
    for (const std::string& cell : plan_.cells)
      if (!is_weak(cell)) items.push_back(items_of("ground/1", cell, 1).front());
    return items;
  }

  // Distinct resolved trials of a cell over the launches of `variant` seen so far, those of the search left out: they
  // share their prompts with each other.
  Counts pooled(const Variant& variant, const std::string& cell) const {
    std::set<std::uint64_t> counted;
    Counts c;
    for (const Seen& seen : seen_) {
      if (seen.launch->variant != variant || starts_with(seen.launch->label, "search/")) continue;
      for (const auto& item : seen.items) {
        if (item.first.cell != cell || item.second != findings_.wording) continue;
        const TrialRecord* t = trial_of(*seen.launch, item);
        if (t == nullptr || t->grade == Grade::infrastructure || !counted.insert(item.first.seed).second) continue;
        c += {is_failure(t->grade) ? 1 : 0, 1};
      }
    }
    return c;
  }

  // ---- ground
  // ---------------------------------------------------------------------------------------------------------

  bool one_variant() const { return findings_.deployed == findings_.reference; }

  const LaunchRecord& need(const std::string& label, const Variant& variant, const Items& items,
                           const std::string& why) {
    const LaunchRecord* launch = want(label, variant, items, why);
    if (launch == nullptr) stop_unmeasured();
    return *launch;
  }

  bool nothing_launched() const {
    return std::all_of(seen_.begin(), seen_.end(), [](const Seen& seen) {
      return seen.launch->status == Status::failed || seen.launch->status == Status::infeasible;
    });
  }

  void choose_wording() {
    std::vector<std::pair<std::string, Variant>> places{{"ground/reference/1", findings_.reference}};
    if (!one_variant()) places.push_back({"ground/deployed/1", findings_.deployed});
    for (const auto& [label, variant] : places) {
      for (const Wording wording : {Wording::phantom, Wording::plain}) {
        Items items;
        for (int i = 0; i < kWordingTrials; ++i)
          items.push_back({{"short", derive_seed(plan_.seed, fmt::format("wording/{}", i))}, wording});
        const LaunchRecord* launch =
            want(label, variant, items, fmt::format("which wording is understood: {}?", wording_name(wording)));
        if (launch == nullptr) {
          // Whether anything launches at all is worth one more launch: then the deployment itself is not what is wrong.
          if (&variant == &places.front().second && !one_variant() && nothing_launched())
            want_once("ground/deployed/1", findings_.deployed, {},
                      "the reference did not launch: does it as deployed?");
          stop_unmeasured();
        }
        const Counts c = count(*launch, items);
        if (c.trials >= kWordingTrials - kWordingMisses && c.failures <= kWordingMisses) {
          findings_.wording = wording;
          // Only the launch in which the wording was found is still open.
          reference_label_ = variant == findings_.reference ? label : "ground/reference/main";
          return;
        }
      }
    }
    for (const std::string& cell : plan_.cells)
      not_covered_.push_back(cell == "short" ? "short: partly, it was asked only until no wording was understood"
                                             : cell);
    stop("inconclusive",
         "no wording of the short probe is answered right by 9 in 10, neither by the reference variant nor "
         "as deployed: the other probes would measure nothing");
  }

  void ground() {
    Items first = whole_set("ground/1");
    for (const std::string& cell : plan_.cells)
      if (is_weak(cell))
        for (auto& item : items_of("ground/1", cell, 1)) first.push_back(item);
    const bool deployed_first = reference_label_ != "ground/reference/1";
    if (deployed_first) need("ground/deployed/1", findings_.deployed, first, "as deployed, first launch");
    need(reference_label_, findings_.reference, first, "reference variant, first launch");
    if (!deployed_first && !one_variant())
      need("ground/deployed/1", findings_.deployed, first, "as deployed, first launch");

    Items second = repeated_items();
    const std::vector<std::string> loud = loud_cells();
    for (auto& item : whole_set("ground/2"))
      if (loud.empty() || std::find(loud.begin(), loud.end(), item.first.cell) != loud.end())
        second.push_back(std::move(item));
    if (!one_variant()) need("ground/deployed/2", findings_.deployed, second, "as deployed, new prompts");
    need("ground/reference/2", findings_.reference, second, "reference variant, the same new prompts");
  }

  // Cells with so many failures in the first pair of launches that the second pair needs only the cheapest of them.
  std::vector<std::string> loud_cells() const {
    constexpr std::size_t kCells = 2;
    constexpr double kLoud = 0.05;
    std::vector<std::string> loud;
    for (const std::string& cell : plan_.cells) {
      if (is_weak(cell)) continue;
      const Counts d = pooled(findings_.deployed, cell);
      const Counts r = pooled(findings_.reference, cell);
      if (fisher_more(d.failures, d.trials, r.failures, r.trials) <= kLoud ||
          fisher_more(r.failures, r.trials, d.failures, d.trials) <= kLoud)
        loud.push_back(cell);
    }
    std::sort(loud.begin(), loud.end(), [&](const auto& a, const auto& b) { return cost_of(a) < cost_of(b); });
    if (loud.size() > kCells) loud.resize(kCells);
    return loud;
  }

  // Mean prompt tokens of a trial.
  double cost_of(const std::string& cell) const {
    double tokens = 0;
    int trials = 0;
    for (const Seen& seen : seen_)
      for (const TrialRecord& t : seen.launch->trials)
        if (t.item.cell == cell && starts_with(seen.launch->label, "ground/")) {
          tokens += static_cast<double>(t.tokens());
          ++trials;
        }
    return trials == 0 ? 0 : tokens / trials;
  }

  // Compares raw replies of the same prompt between launches of one variant.
  void measure_floor() {
    if (floor_after_ == seen_.size()) return;
    floor_after_ = seen_.size();
    Floor floor;
    std::set<const LaunchRecord*> sharing;
    std::map<std::tuple<Variant, std::string, std::uint64_t, int>, std::pair<const LaunchRecord*, const TrialRecord*>>
        first;
    for (const Seen& seen : seen_)
      for (const auto& item : seen.items) {
        const TrialRecord* t = trial_of(*seen.launch, item);
        if (t == nullptr || t->grade == Grade::infrastructure) continue;
        const auto key =
            std::make_tuple(seen.launch->variant, item.first.cell, item.first.seed, static_cast<int>(item.second));
        const auto [it, fresh] = first.emplace(key, std::make_pair(seen.launch, t));
        if (fresh || it->second.first == seen.launch) continue;
        sharing.insert(seen.launch);
        sharing.insert(it->second.first);
        for (std::size_t i = 0; i < t->steps.size(); ++i) {
          if (i >= it->second.second->steps.size()) break;
          ++floor.compared_replies;
          if (t->steps[i].text != it->second.second->steps[i].text) ++floor.different_replies;
        }
      }
    floor.launches = static_cast<int>(sharing.size());
    findings_.floor = floor;
  }

  bool bit_identical() {
    measure_floor();
    return findings_.floor.identical();
  }

  // ---- symptom
  // --------------------------------------------------------------------------------------------------------

  struct Symptom {
    std::string cell;
    Variant bad;
    Variant good;
    Design design;
    double cost = 0;
  };

  // What the passing variant's failure rate is taken to be: its whole suite when it never failed, else this cell.
  Counts good_counts(const Variant& good, const std::string& cell) const {
    Counts all;
    for (const std::string& c : plan_.cells)
      if (!is_weak(c)) all += pooled(good, c);
    return all.failures == 0 ? all : pooled(good, cell);
  }

  std::optional<Symptom> symptom_between(const Variant& bad, const Variant& good) {
    std::optional<Symptom> best;
    for (const std::string& cell : plan_.cells) {
      if (is_weak(cell)) continue;
      const Counts b = pooled(bad, cell);
      const Counts g = pooled(good, cell);
      if (fisher_more(b.failures, b.trials, g.failures, g.trials) > kSymptomP) continue;
      std::optional<Design> design = choose_design(b, good_counts(good, cell));
      const auto replays = static_cast<int>(failing_items(bad, good, cell).size());
      if (!design && !(bit_identical() && replays >= kMinReplays)) continue;
      if (!design) design = Design{kMaxTrialsPerLaunch, 1};
      const double cost = cost_of(cell) * (bit_identical() ? std::min(design->trials, kMaxReplays) : design->trials);
      if (!best || cost < best->cost) best = Symptom{cell, bad, good, *design, cost};
    }
    return best;
  }

  // Prompts of a cell that failed on `bad` and never on `good`, both having answered.
  Items failing_items(const Variant& bad, const Variant& good, const std::string& cell) const {
    std::map<std::uint64_t, std::pair<bool, bool>> failed_on_bad;  // seed -> asked, failed
    std::map<std::uint64_t, std::pair<bool, bool>> failed_on_good;
    for (const Seen& seen : seen_)
      for (const auto& item : seen.items) {
        const TrialRecord* t = trial_of(*seen.launch, item);
        if (item.first.cell != cell || item.second != findings_.wording || t == nullptr) continue;
        if (t->grade == Grade::infrastructure) continue;
        for (auto [variant, table] : {std::pair(&bad, &failed_on_bad), std::pair(&good, &failed_on_good)})
          if (seen.launch->variant == *variant) {
            (*table)[item.first.seed].first = true;
            (*table)[item.first.seed].second |= is_failure(t->grade);
          }
      }
    Items items;
    for (const auto& [seed, on_bad] : failed_on_bad) {
      const auto on_good = failed_on_good.find(seed);
      if (on_bad.second && on_good != failed_on_good.end() && !on_good->second.second)
        items.push_back({{cell, seed}, *findings_.wording});
    }
    return items;
  }

  int failures_in(const Variant& variant) const {
    int sum = 0;
    for (const std::string& cell : plan_.cells)
      if (!is_weak(cell)) sum += pooled(variant, cell).failures;
    return sum;
  }

  // Failures were seen but too few to judge by: many fresh trials of the cell where variants disagree most.
  void hunt() {
    std::string chosen;
    int most = 0;
    for (const std::string& cell : plan_.cells) {
      if (is_weak(cell)) continue;
      const auto disagree = static_cast<int>(failing_items(findings_.deployed, findings_.reference, cell).size() +
                                             failing_items(findings_.reference, findings_.deployed, cell).size());
      if (disagree > most) {
        most = disagree;
        chosen = cell;
      }
    }
    if (chosen.empty()) return;
    const Items items = items_of("hunt", chosen, kHuntTrials);
    need("ground/deployed/hunt", findings_.deployed, items, "too few failures to judge: more prompts of " + chosen);
    need("ground/reference/hunt", findings_.reference, items, "the same prompts on the reference");
  }

  // Cells that most trials of both variants fail.
  std::vector<std::string> cells_failing_everywhere() const {
    std::vector<std::string> cells;
    for (const std::string& cell : plan_.cells) {
      if (is_weak(cell)) continue;
      const Counts d = pooled(findings_.deployed, cell);
      const Counts r = pooled(findings_.reference, cell);
      const auto often = [](Counts c) { return c.failures >= 2 && 10 * c.failures > c.trials; };
      if (often(d) && often(r)) cells.push_back(cell);
    }
    return cells;
  }

  // ---- the whole
  // ------------------------------------------------------------------------------------------------------

  void investigate() {
    choose_wording();
    ground();
    std::optional<Symptom> symptom = find_symptom();
    if (!symptom && !one_variant() && cells_failing_everywhere().empty() &&
        failures_in(findings_.deployed) + failures_in(findings_.reference) > 0) {
      hunt();
      symptom = find_symptom();
    }
    if (!symptom && !cells_failing_everywhere().empty()) symptom = look_for_a_passing_variant();
    if (!symptom) clean_or_not();
    isolate_all(*symptom);
  }

  std::optional<Symptom> find_symptom() {
    if (one_variant()) return std::nullopt;
    if (auto s = symptom_between(findings_.deployed, findings_.reference)) return s;
    return symptom_between(findings_.reference, findings_.deployed);
  }

  [[noreturn]] void clean_or_not() {
    check_coverage();
    // A launch of its own for more prompts, and more until the bound is met.
    for (int set = 3; set <= kMaxCleanSets; ++set) {
      if (set > 3 && upper_limit(deployed_counts().failures, deployed_counts().trials, 0.95) <= kCleanRate) break;
      const std::string label = fmt::format("ground/deployed/{}", set);
      need(label, findings_.deployed, whole_set(fmt::format("ground/{}", set)), "as deployed, more new prompts");
    }
    const Counts d = deployed_counts();
    const double bound = upper_limit(d.failures, d.trials, 0.95);
    measure_floor();
    if (bound > kCleanRate)
      stop("inconclusive",
           fmt::format("{} of {} trials failed as deployed: no cell differs from the reference for sure, and "
                       "the failure rate may be up to {:.1f} %",
                       d.failures, d.trials, 100 * bound));
    if (find_symptom())
      stop("inconclusive", "failures appeared only in the last launches; run again with a larger budget");
    if (!not_covered_.empty())
      stop("inconclusive", fmt::format("nothing failed, but not covered: {}", fmt::join(not_covered_, ", ")));
    if (weak_check_failed())
      stop("inconclusive",
           "exact answers are right, but the (weak) repetition check fails: greedy text compresses to less "
           "than half of the reference's size");
    findings_.reasons.push_back(
        fmt::format("{} of {} trials failed as deployed: the trial failure rate is at most {:.1f} % "
                    "(95 %)",
                    d.failures, d.trials, 100 * bound));
    throw Stop{"clean", "none"};
  }

  Counts deployed_counts() const {
    Counts d;
    for (const std::string& cell : plan_.cells)
      if (!is_weak(cell)) d += pooled(findings_.deployed, cell);
    return d;
  }

  // Every variant fails: perhaps one switch turned the other way does not.
  std::optional<Symptom> look_for_a_passing_variant() {
    const std::vector<std::string> cells = cells_failing_everywhere();
    const std::string cell = *std::min_element(cells.begin(), cells.end(),
                                               [&](const auto& a, const auto& b) { return cost_of(a) < cost_of(b); });
    const Counts bad = pooled(findings_.deployed, cell);
    Counts good;  // what passing looks like: the cells that do not fail
    for (const std::string& c : plan_.cells)
      if (!is_weak(c) && std::find(cells.begin(), cells.end(), c) == cells.end())
        good += pooled(findings_.reference, c);
    const auto design = choose_design(bad, good);
    if (!design)
      stop("inconclusive", fmt::format("{} fails as deployed and on the reference, too rarely to search", cell));
    const Items items = items_of("search/base", cell, design->trials);
    bool all_failed = true;
    std::optional<Symptom> found;
    for (std::size_t s = 0; s < plan_.deployment.switches.size(); ++s) {
      const auto variant = with_side(plan_.deployment, findings_.deployed, s, !findings_.deployed[s]);
      const std::string& name = plan_.deployment.switches[s].name;
      if (!variant) {
        ask_openly(fmt::format("{} could not be turned alone", name));
        all_failed = false;
        continue;
      }
      const LaunchRecord* launch =
          want("search/base/" + name, *variant, items, "every variant fails: does turning " + name + " cure?",
               {design->threshold, items.size(), "no", "yes"});
      if (launch == nullptr) {
        ask_openly("could not be measured: " + last_failure_);
        all_failed = false;
        continue;
      }
      // The others are turned as well: that they do not help is evidence.
      if (count(*launch, items).failures < design->threshold && !found)
        found = Symptom{cell, findings_.deployed, *variant, *design, 0};
    }
    if (found) return found;
    if (all_failed && every_launch_failed(cell, design->threshold))
      stop("unexplained",
           fmt::format(
               "{} fails in every variant launched, the reference and each single turn of a switch included: either "
               "a step under no switch is broken, or the model cannot answer this probe",
               cell),
           "base");
    stop("inconclusive", fmt::format("{} fails as deployed and on the reference, but not in all launches", cell));
  }

  // Whether each launch that asked enough trials of the cell shows the symptom.
  bool every_launch_failed(const std::string& cell, int threshold) const {
    for (const Seen& seen : seen_) {
      Items of_cell;
      for (const auto& item : seen.items)
        if (item.first.cell == cell && item.second == findings_.wording) of_cell.push_back(item);
      const Counts c = count(*seen.launch, of_cell);
      if (c.trials >= 2 * threshold && c.failures < threshold) return false;
    }
    return true;
  }

  void isolate_all(Symptom symptom) {
    for (int round = 1; round <= kMaxRounds; ++round) {
      findings_.rounds.push_back({});
      current_ = &findings_.rounds.back();
      const auto rest = isolate(round, symptom);
      if (!rest) {
        measure_floor();
        findings_.reasons.push_back("cure and harm confirmed on launches not used in the search");
        throw Stop{"confirmed", "or"};
      }
      symptom = *rest;
    }
    stop("suspected", "the symptom is not gone after three rounds: more is wrong than was found");
  }

  // ---- isolation
  // ------------------------------------------------------------------------------------------------------

  // Isolates and confirms; returns the symptom that remains in the cured variant, if any.
  std::optional<Symptom> isolate(int round, const Symptom& symptom) {
    Round& r = *current_;
    r.cell = symptom.cell;
    r.bad = symptom.bad;
    r.good = symptom.good;
    r.trials_per_launch = symptom.design.trials;
    r.threshold = symptom.design.threshold;
    const Items failing = failing_items(r.bad, r.good, r.cell);
    r.replays = bit_identical() && static_cast<int>(failing.size()) >= kMinReplays;
    fresh_items_ = symptom.design.trials;
    replay_items_.clear();
    if (r.replays) {
      replay_items_ = failing;
      if (static_cast<int>(replay_items_.size()) > kMaxReplays) replay_items_.resize(kMaxReplays);
      r.trials_per_launch = static_cast<int>(replay_items_.size());
      r.threshold = (r.trials_per_launch + 1) / 2;
    }
    outcomes_.clear();

    int repeats = 1;
    const std::string prefix = fmt::format("search/{}", round);
    bool steady = fails(prefix + "/bad", r.bad, 1, "the failing variant once more") &&
                  !fails(prefix + "/good", r.good, 1, "the passing variant once more");
    if (!steady) repeats = kRepeatsWhenFlaky;
    search(round, repeats);
    if (r.hypothesis.members.empty() && repeats == 1) search(round, kRepeatsWhenFlaky);
    if (r.hypothesis.members.empty())
      stop("inconclusive", "no switch, and no set of them, explains cures and harms alike");
    confirm(round);
    return remaining_symptom(round);
  }

  Items search_items(int round) const {
    if (!replay_items_.empty()) return replay_items_;
    return items_of(fmt::format("search/{}", round), current_->cell, fresh_items_);
  }

  // Whether a variant shows the symptom in any of `repeats` launches.
  bool fails(const std::string& label, const Variant& variant, int repeats, const std::string& why,
             Counts* counts = nullptr, bool* measured = nullptr, Judgement answers = {0, 0, "it fails", "it passes"}) {
    const int round = static_cast<int>(findings_.rounds.size());
    Items items = search_items(round);
    answers.threshold = current_->threshold;
    answers.judged = items.size();
    bool any = false;
    if (measured != nullptr) *measured = true;
    for (int i = 1; i <= repeats; ++i) {
      const Items asked = label.ends_with("/bad") || label.ends_with("/good") ? with_repeated(items) : items;
      const LaunchRecord* launch = want(fmt::format("{}/{}", label, i), variant, asked, why, answers);
      if (launch == nullptr) {
        if (measured == nullptr) stop("inconclusive", "could not be measured: " + last_failure_);
        *measured = false;
        return false;
      }
      const Counts c = count(*launch, items);
      const bool failed = c.failures >= current_->threshold;
      outcomes_.push_back({variant, failed});
      if (counts != nullptr) *counts += c;
      any |= failed;
    }
    return any;
  }

  // Adds a few prompts of the ground, so that launches of the search tell about the floor too.
  Items with_repeated(Items items) const {
    constexpr std::size_t kRepeated = 3;
    Items repeated = repeated_items();
    // The symptom's own cell first: a launch that differs in it alone must show.
    const auto key = [&](const auto& item) {
      return std::make_pair(item.first.cell != current_->cell, cost_of(item.first.cell));
    };
    std::sort(repeated.begin(), repeated.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    if (repeated.size() > kRepeated) repeated.resize(kRepeated);
    for (auto& item : repeated)
      if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(std::move(item));
    return items;
  }

  void search(int round, int repeats) {
    Round& r = *current_;
    r.rows.clear();
    const auto& switches = plan_.deployment.switches;
    std::vector<LaunchOutcome> before(outcomes_.begin(), outcomes_.begin() + std::min<long>(2, std::ssize(outcomes_)));
    outcomes_ = before;
    for (const std::size_t s : difference(r.bad, r.good)) {
      SwitchRow row;
      row.index = s;
      row.cures = turned(round, repeats, "cure", r.bad, s, r.good[s], row);
      if (row.cures) row.cures = !*row.cures;
      row.harms = turned(round, repeats, "harm", r.good, s, r.bad[s], row);
      r.rows.push_back(row);
      if (!row.note.empty()) ask_openly(fmt::format("{}: {}", switches[s].name, row.note));
    }
    r.hypothesis = classify(r.rows);
  }

  // Whether `base` with one switch turned fails; empty when that cannot be measured.
  std::optional<bool> turned(int round, int repeats, const std::string& direction, const Variant& base, std::size_t s,
                             bool side, SwitchRow& row) {
    const std::string& name = plan_.deployment.switches[s].name;
    const auto variant = with_side(plan_.deployment, base, s, side);
    if (!variant) {
      row.note = fmt::format("cannot be turned {} alone: requires or conflicts forbid it", side ? "on" : "off");
      return std::nullopt;
    }
    bool measured = true;
    const std::string why = direction == "cure" ? fmt::format("does turning {} {} cure?", name, side ? "on" : "off")
                                                : fmt::format("does turning {} {} harm?", name, side ? "on" : "off");
    const bool failed = fails(fmt::format("search/{}/{}/{}", round, direction, name), *variant, repeats, why,
                              direction == "cure" ? &row.cure : &row.harm, &measured,
                              direction == "cure" ? Judgement{0, 0, "no", "yes"} : Judgement{0, 0, "yes", "no"});
    if (!measured) {
      row.note = last_failure_;
      return std::nullopt;
    }
    return failed;
  }

  static Hypothesis classify(const std::vector<SwitchRow>& rows) {
    std::vector<std::size_t> cures;
    std::vector<std::size_t> harms;
    for (const SwitchRow& row : rows) {
      if (row.cures.value_or(false)) cures.push_back(row.index);
      if (row.harms.value_or(false)) harms.push_back(row.index);
    }
    if (cures.size() == 1 && harms == cures) return {Class::any_of, cures};
    if (cures.empty() && harms.size() >= 2 && harms.size() <= kMaxMembers) return {Class::any_of, harms};
    if (harms.empty() && cures.size() >= 2 && cures.size() <= kMaxMembers) return {Class::all_of, cures};
    return {Class::other, {}};
  }

  // ---- confirmation
  // ---------------------------------------------------------------------------------------------------

  Variant turned_all(Variant variant, const std::vector<std::size_t>& members, const Variant& sides) const {
    for (const std::size_t s : members)
      if (auto next = with_side(plan_.deployment, variant, s, sides[s])) variant = *next;
    return variant;
  }

  static std::vector<std::size_t> without(std::vector<std::size_t> members, std::size_t s) {
    members.erase(std::find(members.begin(), members.end(), s));
    return members;
  }

  // One launch on prompts of its own; failing = the symptom shows.
  bool confirm_launch(int round, const std::string& name, int index, const Variant& variant, const std::string& why) {
    const std::string label = fmt::format("confirm/{}/{}/{}", round, name, index);
    // Both launches of a pair get the same prompts.
    const std::string set = fmt::format("confirm/{}/{}", round, index);
    const Items items = replay_items_.empty() ? items_of(set, current_->cell, fresh_items_) : replay_items_;
    const LaunchRecord* launch =
        want(label, variant, items, why, {current_->threshold, items.size(), "it fails", "it passes"});
    if (launch == nullptr) stop("suspected", "the confirmation could not be measured: " + last_failure_, klass());
    const bool failed = count(*launch, items).failures >= current_->threshold;
    outcomes_.push_back({variant, failed});
    return failed;
  }

  std::string klass() const {
    switch (current_->hypothesis.kind) {
      case Class::any_of:
        return "or";
      case Class::all_of:
        return "and";
      default:
        return "other";
    }
  }

  void confirm(int round) {
    Round& r = *current_;
    const std::vector<std::size_t>& set = r.hypothesis.members;
    const Variant cured = turned_all(r.bad, set, r.good);
    const bool identical = bit_identical() && findings_.floor.launches >= kIdenticalLaunches;
    const auto name_of = [&](std::size_t s) { return plan_.deployment.switches[s].name; };
    if (r.hypothesis.kind == Class::any_of) {
      for (const std::size_t s : set) {
        const Variant harmed = turned_all(r.good, {s}, r.bad);
        contrast(round, identical, fmt::format("{} alone harms, the set cures", name_of(s)), harmed, cured);
      }
      for (const std::size_t s : set) {
        if (set.size() == 1) break;
        must_fail(round, fmt::format("minimal-{}", name_of(s)), turned_all(r.bad, without(set, s), r.good),
                  fmt::format("all but {} at their good sides do not cure", name_of(s)));
      }
    } else {
      const Variant harmed = turned_all(r.good, set, r.bad);
      for (const std::size_t s : set) {
        const Variant most = turned_all(r.good, without(set, s), r.bad);
        contrast(round, identical, fmt::format("the set harms, without {} it does not", name_of(s)), harmed, most);
      }
      for (const std::size_t s : set)
        must_pass(round, fmt::format("cure-{}", name_of(s)), turned_all(r.bad, {s}, r.good),
                  fmt::format("{} at its good side cures", name_of(s)));
    }
    sham(round, cured);
    const std::vector<LaunchOutcome> outcomes = all_outcomes();
    r.posterior = posterior(outcomes, r.bad, turned_switches(outcomes), r.hypothesis);
    constexpr double kSure = 0.95;
    if (r.posterior.of_hypothesis < kSure || r.posterior.of_hypothesis_flat < kSure || r.posterior.of_other > 1 - kSure)
      stop("suspected",
           fmt::format("the posterior of the set is only {:.3f} ({:.3f} under a flat prior)", r.posterior.of_hypothesis,
                       r.posterior.of_hypothesis_flat),
           klass());
    r.confirmed = true;
  }

  // Switches of which both sides were launched: the others cannot be told from the rest.
  static std::vector<std::size_t> turned_switches(const std::vector<LaunchOutcome>& outcomes) {
    std::vector<std::size_t> turned;
    for (std::size_t s = 0; s < outcomes.front().variant.size(); ++s)
      if (std::any_of(outcomes.begin(), outcomes.end(),
                      [&](const LaunchOutcome& o) { return o.variant[s] != outcomes.front().variant[s]; }))
        turned.push_back(s);
    return turned;
  }

  // Outcomes of this round's launches, and of those before the search that asked the same cell.
  std::vector<LaunchOutcome> all_outcomes() const {
    std::vector<LaunchOutcome> all = outcomes_;
    for (const Seen& seen : seen_) {
      if (!starts_with(seen.launch->label, "ground/") && !starts_with(seen.launch->label, "search/base/")) continue;
      Items of_cell;
      for (const auto& item : seen.items)
        if (item.first.cell == current_->cell && item.second == findings_.wording) of_cell.push_back(item);
      const Counts c = count(*seen.launch, of_cell);
      // Known failing prompts have a threshold of their own, and few trials say little.
      if (current_->replays || c.trials < current_->trials_per_launch) continue;
      all.push_back({seen.launch->variant, c.failures * current_->trials_per_launch >= current_->threshold * c.trials});
    }
    return all;
  }

  void contrast(int round, bool identical, const std::string& name, const Variant& should_fail,
                const Variant& should_pass) {
    Round& r = *current_;
    r.contrasts.push_back({name, should_fail, should_pass, 0, 0, 0, 1});
    Contrast& c = r.contrasts.back();
    const std::string id = fmt::format("contrast-{}", r.contrasts.size());
    PairedEValue e;
    for (int i = 1; i <= kMaxPairs; ++i) {
      const bool fail_first = derive_seed(plan_.seed, fmt::format("{}/{}/{}", round, id, i)) % 2 == 0;
      bool failed = false;
      bool wrongly = false;
      for (const bool first : {true, false}) {
        if (first == fail_first)
          failed = confirm_launch(round, id + "/harm", i, should_fail, fmt::format("{}: should fail", name));
        else
          wrongly = confirm_launch(round, id + "/cure", i, should_pass, fmt::format("{}: should pass", name));
      }
      e.add(failed, wrongly);
      c.pairs = i;
      c.failed += failed ? 1 : 0;
      c.wrongly_failed += wrongly ? 1 : 0;
      c.e_value = e.value();
      const bool perfect = c.failed == i && c.wrongly_failed == 0;
      if (identical && i >= kPairsWhenIdentical && perfect) return;
      if (e.value() >= kEnough) {
        // One launch in ten may be contrary; more means that something else fails too.
        if (10 * c.wrongly_failed <= c.pairs) return;
        stop("suspected", fmt::format("{}: {} of {} launches that should pass failed", name, c.wrongly_failed, c.pairs),
             klass());
      }
      if (e.value() < kHopeless) break;
    }
    stop("inconclusive",
         fmt::format("{}: not confirmed, e-value {:.2g} after {} pairs of launches", name, c.e_value, c.pairs));
  }

  void must_fail(int round, const std::string& id, const Variant& variant, const std::string& what,
                 const std::string& why = {}) {
    for (int i = 1; i <= kAttempts; ++i)
      if (confirm_launch(round, id, i, variant, why.empty() ? what : why)) {
        current_->checks.push_back(what + ": it failed, as it should");
        return;
      }
    current_->checks.push_back(what + ": it passed");
    stop("inconclusive", what + ": contradicted");
  }

  void must_pass(int round, const std::string& id, const Variant& variant, const std::string& what) {
    if (confirm_launch(round, id, 1, variant, what)) {
      current_->checks.push_back(what + ": it failed");
      stop("inconclusive", what + ": contradicted");
    }
    current_->checks.push_back(what + ": it passed, as it should");
  }

  // Restarting with an innocent switch turned must not cure.
  void sham(int round, const Variant& cured) {
    Round& r = *current_;
    for (const std::size_t s : difference(r.bad, r.good)) {
      if (std::find(r.hypothesis.members.begin(), r.hypothesis.members.end(), s) != r.hypothesis.members.end())
        continue;
      const auto variant = with_side(plan_.deployment, r.bad, s, r.good[s]);
      if (!variant || *variant == cured) continue;
      must_fail(round, "sham", *variant,
                fmt::format("sham: turning the innocent {} instead does not cure", plan_.deployment.switches[s].name),
                fmt::format("sham: {} turned instead: should fail", plan_.deployment.switches[s].name));
      return;
    }
    r.checks.push_back("sham: no innocent switch to turn");
  }

  std::string most_failing_cell(const Variant& variant) const {
    std::string chosen;
    int most = 0;
    for (const std::string& cell : plan_.cells)
      if (const int failures = is_weak(cell) ? 0 : pooled(variant, cell).failures; failures > most) {
        most = failures;
        chosen = cell;
      }
    return chosen;
  }

  // The full suite on the cured variant: what still fails there has another cause.
  std::optional<Symptom> remaining_symptom(int round) {
    Round& r = *current_;
    const Variant cured = turned_all(r.bad, r.hypothesis.members, r.good);
    if (cured == r.good) return std::nullopt;
    need(fmt::format("confirm/{}/suite/1", round), cured, whole_set(fmt::format("confirm/{}/suite", round)),
         "the whole suite on the cured variant");
    auto rest = symptom_between(cured, r.good);
    if (const std::string cell = most_failing_cell(cured); !rest && !cell.empty()) {
      // A suite has few trials of each cell: ask more where one failed.
      const Items items = items_of(fmt::format("confirm/{}/rest", round), cell, kRestTrials);
      need(fmt::format("confirm/{}/rest-cured/1", round), cured, items,
           "the cured variant failed " + cell + ": more prompts");
      need(fmt::format("confirm/{}/rest-good/1", round), r.good, items, "the same prompts on the passing variant");
      rest = symptom_between(cured, r.good);
      if (!rest)
        ask_openly(fmt::format("{} failed some trials in the cured variant, no more than chance explains", cell));
    }
    if (rest) r.checks.push_back(fmt::format("the whole suite on the cured variant: {} still fails", rest->cell));
    if (!rest) r.checks.push_back("the whole suite on the cured variant: nothing else fails");
    return rest;
  }

  // ---- the end
  // --------------------------------------------------------------------------------------------------------

  void check_coverage() {
    for (const std::string& cell : plan_.cells) {
      if (is_weak(cell) ? !ratio(findings_.deployed, cell) : pooled(findings_.deployed, cell).trials == 0)
        not_covered_.push_back(asked_anywhere(cell) ? cell + ": partly, not answered as deployed" : cell);
      if (cell == "hit" && !hits_reported()) not_covered_.push_back("hit: partly, the server reports no cached tokens");
      if (cell == "boundary" && !lengths_exact(cell))
        not_covered_.push_back("boundary: partly, its prompts are not as long as meant");
    }
  }

  // A request without a reply comes without numbers too, which says nothing about those of the server.
  static bool answered(const StepRecord& step) { return step.grade != Grade::infrastructure; }

  // Whether any variant answered a trial of the cell.
  bool asked_anywhere(const std::string& cell) const {
    return std::any_of(history_.launches.begin(), history_.launches.end(), [&](const LaunchRecord& l) {
      return std::any_of(l.trials.begin(), l.trials.end(), [&](const TrialRecord& t) {
        return t.item.cell == cell && t.wording == findings_.wording && t.grade != Grade::infrastructure;
      });
    });
  }

  // Whether every step that should find the prefix cache warm did, as deployed.
  bool hits_reported() const {
    for (const Seen& seen : seen_)
      if (seen.launch->variant == findings_.deployed)
        for (const TrialRecord& t : seen.launch->trials)
          if (t.item.cell == "hit" && t.wording == findings_.wording)
            for (const StepRecord& s : t.steps)
              if (s.wants_hit && answered(s) && s.cached_tokens.value_or(0) <= 0) return false;
    return true;
  }

  bool lengths_exact(const std::string& cell) const {
    for (const Seen& seen : seen_)
      for (const TrialRecord& t : seen.launch->trials)
        if (t.item.cell == cell)
          for (const StepRecord& s : t.steps)
            if (answered(s) && s.prompt_tokens.value_or(s.graded ? -1 : s.expected_tokens) != s.expected_tokens)
              return false;
    return true;
  }

  std::optional<double> ratio(const Variant& variant, const std::string& cell) const {
    for (const Seen& seen : seen_)
      if (seen.launch->variant == variant)
        for (const TrialRecord& t : seen.launch->trials)
          if (t.item.cell == cell && !t.steps.empty() && t.grade == Grade::right) return gzip_ratio(t.steps[0].text);
    return std::nullopt;
  }

  bool weak_check_failed() const {
    for (const std::string& cell : plan_.cells) {
      if (!is_weak(cell)) continue;
      const auto d = ratio(findings_.deployed, cell);
      const auto r = ratio(findings_.reference, cell);
      if (d && r && *d < kWeakRatio * *r) return true;
    }
    return false;
  }

  void conclude(const std::string& word, const std::string& stop_class) {
    Verdict& v = findings_.verdict;
    v.verdict = word;
    v.klass = stop_class;
    measure_floor();
    if (not_covered_.empty() && findings_.wording) check_coverage();
    if (not_covered_.empty() && !findings_.wording) not_covered_ = plan_.cells;
    v.not_covered = not_covered_;
    if (word == "confirmed" || word == "suspected") name_culprits();
    if (!findings_.rounds.empty() && findings_.rounds.front().posterior.of_hypothesis > 0) {
      v.posterior = 1;
      v.posterior_flat_prior = 1;
      for (const Round& r : findings_.rounds) {
        v.posterior = std::min(*v.posterior, r.posterior.of_hypothesis);
        v.posterior_flat_prior = std::min(*v.posterior_flat_prior, r.posterior.of_hypothesis_flat);
      }
    }
    for (const LaunchRecord& l : history_.launches) {
      (starts_with(l.label, "ground/")   ? v.floor_launches
       : starts_with(l.label, "search/") ? v.search_launches
                                         : v.confirm_launches) += l.starts;
      v.trials += static_cast<int>(l.trials.size());
    }
    if (!findings_.wording) return;
    const Counts d = deployed_counts();
    if (d.trials > 0) v.trial_failure_rate_95 = upper_limit(d.failures, d.trials, 0.95);
    Counts launches;
    for (const Seen& seen : seen_)
      if (seen.launch->variant == findings_.deployed && starts_with(seen.launch->label, "ground/") &&
          usable(*seen.launch, seen.items) && counted_.insert(seen.launch).second)
        launches += {launch_failed(*seen.launch) ? 1 : 0, 1};
    if (launches.trials > 0) v.launch_failure_rate_95 = upper_limit(launches.failures, launches.trials, 0.95);
  }

  bool launch_failed(const LaunchRecord& launch) const {
    return std::any_of(launch.trials.begin(), launch.trials.end(), [&](const TrialRecord& t) {
      return t.wording == findings_.wording && is_failure(t.grade) && !is_weak(t.item.cell);
    });
  }

  void name_culprits() {
    Verdict& v = findings_.verdict;
    bool any_and = false;
    for (const Round& r : findings_.rounds)
      for (const std::size_t s : r.hypothesis.members) {
        const SwitchSpec& spec = plan_.deployment.switches[s];
        const Culprit culprit{spec.name, r.bad[s] ? "on" : "off", spec.processes, "damage"};
        if (std::find(v.culprits.begin(), v.culprits.end(), culprit) == v.culprits.end()) v.culprits.push_back(culprit);
        any_and |= r.hypothesis.kind == Class::all_of;
      }
    if (!v.culprits.empty()) v.klass = any_and ? "and" : "or";
  }

  const Plan& plan_;
  const History& history_;
  Findings findings_;
  Round* current_ = nullptr;
  std::vector<Seen> seen_;
  std::map<const LaunchRecord*, std::set<std::tuple<std::string, std::uint64_t, Wording>>> asked_;
  std::vector<LaunchOutcome> outcomes_;
  std::vector<std::string> not_covered_;
  std::set<const LaunchRecord*> counted_;
  std::string last_failure_;
  std::string reference_label_;
  std::optional<std::size_t> floor_after_;  // how many of seen_ the floor was measured from
  Items replay_items_;
  int fresh_items_ = 0;
};

}  // namespace

int Verdict::exit_code() const {
  if (verdict == "clean") return 0;
  return verdict == "inconclusive" ? 2 : 1;
}

std::optional<std::string> damage_of(const Plan& plan, const History& history) {
  return Replay(plan, history).damage();
}

NextStep next_step(const Plan& plan, const History& history) { return Replay(plan, history).run(); }

Findings findings_so_far(const Plan& plan, const History& history) { return Replay(plan, history).so_far(); }

Counts count_trials(const History& history, const Variant& variant, std::string_view prefix, std::string_view cell) {
  std::set<std::pair<std::uint64_t, Wording>> counted;
  Counts c;
  for (const LaunchRecord& l : history.launches) {
    if (l.variant != variant || !starts_with(l.label, prefix)) continue;
    for (const TrialRecord& t : l.trials)
      if (t.item.cell == cell && t.grade != Grade::infrastructure && counted.insert({t.item.seed, t.wording}).second)
        c += {is_failure(t.grade) ? 1 : 0, 1};
  }
  return c;
}

}  // namespace plumb::investigator
