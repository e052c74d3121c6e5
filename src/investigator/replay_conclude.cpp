#include <algorithm>

#include <fmt/ranges.h>

#include "investigator/replay.h"
#include "investigator/statistics.h"
#include "investigator/trial.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;

constexpr double kCleanRate = 0.05;
constexpr int kMaxCleanSets = 5;    // sets of trials tried to meet the bound
constexpr double kWeakRatio = 0.5;  // repetition fails below this part of the reference's ratio

}  // namespace

void Replay::check_coverage() {
  for (const std::string& cell : plan_.cells) {
    if (const auto why = is_weak(cell) ? std::nullopt : why_unusable(cell)) not_covered_.push_back(*why);
    if (is_weak(cell) ? !ratio(findings_.deployed, cell) : pooled(findings_.deployed, cell).trials == 0)
      not_covered_.push_back(asked_anywhere(cell) ? cell + ": partly, not answered as deployed" : cell);
    if (cell == "hit" && !hits_reported()) not_covered_.push_back("hit: partly, the server reports no cached tokens");
    if (cell == "boundary")
      if (const auto why = lengths_differ(cell)) not_covered_.push_back(*why);
  }
}

bool Replay::asked_anywhere(const std::string& cell) const {
  return std::any_of(history_.launches.begin(), history_.launches.end(), [&](const LaunchRecord& l) {
    return std::any_of(l.trials.begin(), l.trials.end(), [&](const TrialRecord& t) {
      return t.item.cell == cell && t.wording == findings_.wording && t.grade != Grade::infrastructure;
    });
  });
}

bool Replay::hits_reported() const {
  for (const Seen& seen : seen_)
    if (seen.launch->variant == findings_.deployed)
      for (const TrialRecord& t : seen.launch->trials)
        if (t.item.cell == "hit" && t.wording == findings_.wording)
          for (const StepRecord& s : t.steps)
            if (s.wants_hit && answered(s) && s.cached_tokens.value_or(0) <= 0) return false;
  return true;
}

std::optional<std::string> Replay::lengths_differ(const std::string& cell) const {
  for (const Seen& seen : seen_)
    if (const auto why = why_lengths_differ(seen.launch->trials, cell)) return why;
  return std::nullopt;
}

std::optional<double> Replay::ratio(const Variant& variant, const std::string& cell) const {
  for (const Seen& seen : seen_)
    if (seen.launch->variant == variant)
      for (const TrialRecord& t : seen.launch->trials)
        if (t.item.cell == cell && !t.steps.empty() && t.grade == Grade::right) return gzip_ratio(t.steps[0].text);
  return std::nullopt;
}

bool Replay::weak_check_failed() const {
  for (const std::string& cell : plan_.cells) {
    if (!is_weak(cell)) continue;
    const auto d = ratio(findings_.deployed, cell);
    const auto r = ratio(findings_.reference, cell);
    if (d && r && *d < kWeakRatio * *r) return true;
  }
  return false;
}

void Replay::conclude(const std::string& word, const std::string& stop_class) {
  Verdict& v = findings_.verdict;
  v.verdict = word;
  v.klass = stop_class;
  measure_floor();
  describe_distance();
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
  if (word == "unexplained" && base_) {
    v.posterior = base_->posterior;
    v.posterior_flat_prior = base_->posterior_flat;
  }
  for (const LaunchRecord& l : history_.launches) {
    (l.label.starts_with("ground/") || l.label.starts_with("start/") ? v.floor_launches
     : l.label.starts_with("search/")                                ? v.search_launches
                                                                     : v.confirm_launches) += l.starts;
    v.turned += l.starts == 0 ? 1 : 0;
    v.trials += static_cast<int>(l.trials.size());
  }
  if (!findings_.wording) return;
  const Counts d = deployed_counts();
  if (d.trials > 0) v.trial_failure_rate_95 = upper_limit(d.failures, d.trials, 0.95);
  Counts launches;
  for (const Seen& seen : seen_)
    if (seen.launch->variant == findings_.deployed && seen.launch->label.starts_with("ground/") &&
        usable(*seen.launch, seen.items) && counted_.insert(seen.launch).second)
      launches += {launch_failed(*seen.launch) ? 1 : 0, 1};
  if (launches.trials > 0) v.launch_failure_rate_95 = upper_limit(launches.failures, launches.trials, 0.95);
}

bool Replay::launch_failed(const LaunchRecord& launch) const {
  return std::any_of(launch.trials.begin(), launch.trials.end(), [&](const TrialRecord& t) {
    return t.wording == findings_.wording && is_failure(t.grade) && !is_weak(t.item.cell);
  });
}

void Replay::name_culprits() {
  Verdict& v = findings_.verdict;
  bool any_and = false;
  for (const Round& r : findings_.rounds)
    for (const std::size_t s : r.hypothesis.members) {
      const SwitchSpec& spec = plan_.deployment.switches[s];
      const Culprit culprit{spec.name, r.bad[s] ? "on" : "off", spec.processes, "damage"};
      if (std::find(v.culprits.begin(), v.culprits.end(), culprit) == v.culprits.end()) v.culprits.push_back(culprit);
      any_and |= r.hypothesis.kind == Class::all_of;
    }
  for (const OverBudget& o : findings_.over_budget) {
    const SwitchSpec& spec = plan_.deployment.switches[o.index];
    v.culprits.push_back({spec.name, findings_.deployed[o.index] ? "on" : "off", spec.processes, "over budget"});
  }
  if (!v.culprits.empty()) v.klass = any_and ? "and" : "or";
}

std::optional<Replay::Symptom> Replay::clean_or_not() {
  check_coverage();
  // A launch of its own for more prompts, and more until the bound is met.
  for (int set = 3; set <= kMaxCleanSets; ++set) {
    if (set > 3 && upper_limit(deployed_counts().failures, deployed_counts().trials, 0.95) <= kCleanRate) break;
    const std::string label = fmt::format("ground/deployed/{}", set);
    const Items items = whole_set(fmt::format("ground/{}", set));
    const LaunchRecord& launch = need(label, findings_.deployed, items, "as deployed, more new prompts");
    if (one_variant() || count(launch, items).failures == 0) continue;
    // A fault that shows in some launches only may have waited until now.
    need(fmt::format("ground/reference/{}", set), findings_.reference, items, "the same prompts on the reference");
    if (auto late = find_symptom()) return late;
  }
  const Counts d = deployed_counts();
  const double bound = upper_limit(d.failures, d.trials, 0.95);
  measure_floor();
  if (bound > kCleanRate)
    stop("inconclusive",
         fmt::format("{} of {} trials failed as deployed: no cell differs from the reference for sure, and "
                     "the failure rate may be up to {:.1f} %",
                     d.failures, d.trials, 100 * bound));
  if (!not_covered_.empty())
    stop("inconclusive", fmt::format("nothing failed, but not covered: {}", fmt::join(not_covered_, ", ")));
  if (weak_check_failed())
    stop("inconclusive",
         "exact answers are right, but the (weak) repetition check fails: greedy text compresses to less "
         "than half of the reference's size");
  judge_differences();
  findings_.reasons.push_back(
      fmt::format("{} of {} trials failed as deployed: the trial failure rate is at most {:.1f} % "
                  "(95 %)",
                  d.failures, d.trials, 100 * bound));
  throw Stop{"clean", "none"};
}

Counts Replay::deployed_counts() const {
  Counts d;
  for (const std::string& cell : plan_.cells)
    if (!is_weak(cell)) d += pooled(findings_.deployed, cell);
  return d;
}

}  // namespace plumb::investigator
