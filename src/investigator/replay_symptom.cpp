#include <algorithm>

#include "investigator/replay.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

constexpr int kHuntTrials = 40;  // fresh trials of one cell when ground saw failures too rare to judge
constexpr int kMaxReplays = 8;
constexpr int kMinReplays = 3;
constexpr double kSymptomP = 0.01;  // Fisher, per cell; what passes is confirmed on fresh launches

}  // namespace

Counts Replay::good_counts(const Variant& good, const std::string& cell) const {
  Counts all;
  for (const std::string& c : plan_.cells)
    if (!is_weak(c)) all += pooled(good, c);
  return all.failures == 0 ? all : pooled(good, cell);
}

std::optional<Replay::Symptom> Replay::symptom_between(const Variant& bad, const Variant& good) {
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

Items Replay::failing_items(const Variant& bad, const Variant& good, const std::string& cell) const {
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

int Replay::failures_in(const Variant& variant) const {
  int sum = 0;
  for (const std::string& cell : plan_.cells)
    if (!is_weak(cell)) sum += pooled(variant, cell).failures;
  return sum;
}

void Replay::hunt() {
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

std::vector<std::string> Replay::cells_failing_everywhere() const {
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

std::optional<Replay::Symptom> Replay::find_symptom() {
  if (one_variant()) return std::nullopt;
  if (auto s = symptom_between(findings_.deployed, findings_.reference)) return s;
  return symptom_between(findings_.reference, findings_.deployed);
}

std::optional<Replay::Symptom> Replay::look_for_a_passing_variant() {
  const std::vector<std::string> cells = cells_failing_everywhere();
  const std::string cell = *std::min_element(cells.begin(), cells.end(),
                                             [&](const auto& a, const auto& b) { return cost_of(a) < cost_of(b); });
  const Counts bad = pooled(findings_.deployed, cell);
  Counts good;  // what passing looks like: the cells that do not fail
  for (const std::string& c : plan_.cells)
    if (!is_weak(c) && std::find(cells.begin(), cells.end(), c) == cells.end()) good += pooled(findings_.reference, c);
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

bool Replay::every_launch_failed(const std::string& cell, int threshold) const {
  for (const Seen& seen : seen_) {
    Items of_cell;
    for (const auto& item : seen.items)
      if (item.first.cell == cell && item.second == findings_.wording) of_cell.push_back(item);
    const Counts c = count(*seen.launch, of_cell);
    if (c.trials >= 2 * threshold && c.failures < threshold) return false;
  }
  return true;
}

}  // namespace plumb::investigator
