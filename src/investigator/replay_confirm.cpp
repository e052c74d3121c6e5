#include <algorithm>
#include <cmath>

#include "investigator/replay.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;

constexpr int kRestTrials = 12;  // of a cell that still failed in the cured variant
constexpr int kMaxPairs = 28;    // of launches in a contrast
constexpr double kEnough = 100;  // e-value
constexpr double kHopeless = 0.05;
constexpr int kPairsWhenIdentical = 2;
constexpr int kIdenticalLaunches = 5;

}  // namespace

Variant Replay::turned_all(Variant variant, const std::vector<std::size_t>& members, const Variant& sides) const {
  for (const std::size_t s : members)
    if (auto next = with_side(plan_.deployment, variant, s, sides[s])) variant = *next;
  return variant;
}

std::vector<std::size_t> Replay::without(std::vector<std::size_t> members, std::size_t s) {
  members.erase(std::find(members.begin(), members.end(), s));
  return members;
}

bool Replay::confirm_launch(int round, const std::string& name, int index, const Variant& variant,
                            const std::string& why) {
  const std::string label = fmt::format("confirm/{}/{}/{}", round, name, index);
  // Both launches of a pair get the same prompts.
  const std::string set = fmt::format("confirm/{}/{}", round, index);
  const Items items = replay_items_.empty() ? items_of(set, current_->cell, fresh_items_) : replay_items_;
  const LaunchRecord* launch =
      want(label, variant, items, why, {current_->threshold, items.size(), "it fails", "it passes"});
  if (launch == nullptr) stop("suspected", "the confirmation could not be measured: " + last_failure_, klass());
  if (std::find(cures_.begin(), cures_.end(), variant) != cures_.end() && measured(variant) == nullptr)
    measure(*launch);
  const bool failed = count(*launch, items).failures >= current_->threshold;
  outcomes_.push_back({variant, failed});
  test_->add(outcomes_.back());
  return failed;
}

std::string Replay::klass() const {
  switch (current_->hypothesis.kind) {
    case Class::any_of:
      return "or";
    case Class::all_of:
      return "and";
    default:
      return "other";
  }
}

void Replay::confirm(int round) {
  Round& r = *current_;
  const std::vector<std::size_t>& set = r.hypothesis.members;
  const Variant cured = turned_all(r.bad, set, r.good);
  const bool identical = bit_identical() && findings_.floor.launches >= kIdenticalLaunches;
  const auto name_of = [&](std::size_t s) { return plan_.deployment.switches[s].name; };
  cures_ = cures_to_measure(r);
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
  must_approach_reference(round, cures_);
  sham(round, cured);
  r.posterior = test_->of(r.hypothesis, bad_sides());
  if (r.posterior.of_hypothesis < kSure || r.posterior.of_hypothesis_flat < kSure || r.posterior.of_other > 1 - kSure)
    stop("suspected",
         fmt::format("the posterior of the set is only {:.3f} ({:.3f} under a flat prior)", r.posterior.of_hypothesis,
                     r.posterior.of_hypothesis_flat),
         klass());
  if (r.posterior.predictive_p < kPredictiveP)
    stop("inconclusive", fmt::format("launches that the set calls alike differ by another switch's side (p {:.3f})",
                                     r.posterior.predictive_p));
  r.confirmed = true;
}

std::vector<LaunchOutcome> Replay::all_outcomes() const {
  std::vector<LaunchOutcome> all = outcomes_;
  // Known failing prompts have a threshold of their own.
  if (current_->replays) return all;
  for (LaunchOutcome& o : outcomes_before(current_->cell, {current_->trials_per_launch, current_->threshold}))
    all.push_back(std::move(o));
  return all;
}

std::vector<LaunchOutcome> Replay::outcomes_before(const std::string& cell, const Design& design) const {
  std::vector<LaunchOutcome> all;
  for (const Seen& seen : seen_) {
    if (!seen.launch->label.starts_with("ground/") && !seen.launch->label.starts_with("search/base/")) continue;
    Items of_cell;
    for (const auto& item : seen.items)
      if (item.first.cell == cell && item.second == findings_.wording) of_cell.push_back(item);
    const Counts c = count(*seen.launch, of_cell);
    if (c.trials < design.trials) continue;  // few trials say little
    all.push_back(
        {seen.launch->variant, c.failures * design.trials >= design.threshold * c.trials, seen.launch->process()});
  }
  return all;
}

int Replay::attempts() const {
  constexpr double kMissed = 0.02;
  constexpr int kMost = 6;
  const double misses = 1 - test_->bad_rate(current_->hypothesis, bad_sides());
  return std::clamp(static_cast<int>(std::ceil(std::log(kMissed) / std::log(misses))), 1, kMost);
}

void Replay::contrast(int round, bool identical, const std::string& name, const Variant& should_fail,
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

void Replay::must_fail(int round, const std::string& id, const Variant& variant, const std::string& what,
                       const std::string& why) {
  const int most = std::max(kAttempts, attempts());
  for (int i = 1; i <= most; ++i)
    if (confirm_launch(round, id, i, variant, why.empty() ? what : why)) {
      current_->checks.push_back(what + ": it failed, as it should");
      return;
    }
  current_->checks.push_back(what + ": it passed");
  stop("inconclusive", what + ": contradicted");
}

void Replay::must_pass(int round, const std::string& id, const Variant& variant, const std::string& what) {
  const int most = attempts();
  for (int i = 1; i <= most; ++i)
    if (confirm_launch(round, id, i, variant, what)) {
      current_->checks.push_back(what + ": it failed");
      stop("inconclusive", what + ": contradicted");
    }
  current_->checks.push_back(what + ": it passed, as it should");
}

void Replay::sham(int round, const Variant& cured) {
  Round& r = *current_;
  for (const std::size_t s : difference(r.bad, r.good)) {
    if (std::find(r.hypothesis.members.begin(), r.hypothesis.members.end(), s) != r.hypothesis.members.end()) continue;
    const auto variant = with_side(plan_.deployment, r.bad, s, r.good[s]);
    if (!variant || *variant == cured || is_known_infeasible(*variant)) continue;
    must_fail(round, "sham", *variant,
              fmt::format("sham: turning the innocent {} instead does not cure", plan_.deployment.switches[s].name),
              fmt::format("sham: {} turned instead: should fail", plan_.deployment.switches[s].name));
    return;
  }
  r.checks.push_back("sham: no innocent switch to turn");
}

std::string Replay::most_failing_cell(const Variant& variant) const {
  std::string chosen;
  int most = 0;
  for (const std::string& cell : plan_.cells)
    if (const int failures = is_weak(cell) ? 0 : pooled(variant, cell).failures; failures > most) {
      most = failures;
      chosen = cell;
    }
  return chosen;
}

std::optional<Replay::Symptom> Replay::remaining_symptom(int round) {
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

}  // namespace plumb::investigator
