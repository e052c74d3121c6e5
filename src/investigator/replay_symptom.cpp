#include <algorithm>
#include <numeric>

#include "investigator/operator_conversation.h"
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
    if (is_weak(cell) || why_unusable(cell)) continue;
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

Counts Replay::no_answers(const Variant& variant, const std::string& cell) const {
  std::set<std::uint64_t> counted;
  Counts c;
  for (const Seen& seen : seen_)
    for (const auto& item : seen.items) {
      if (seen.launch->variant != variant || item.first.cell != cell || item.second != findings_.wording) continue;
      const TrialRecord* t = trial_of(*seen.launch, item);
      if (t == nullptr || t->grade == Grade::infrastructure || !counted.insert(item.first.seed).second) continue;
      // Empty, a loop, unreadable: what the model does. The rest says that the answer had no room.
      const bool no_room = std::any_of(t->steps.begin(), t->steps.end(), [](const StepRecord& s) {
        return s.graded && s.grade == Grade::no_answer && s.detail != "empty" && s.detail != "loop" &&
               s.detail != "unparsable";
      });
      c += {no_room ? 1 : 0, 1};
    }
  return c;
}

std::optional<std::string> Replay::why_unusable(const std::string& cell) const {
  const auto often = [](Counts c) { return c.failures >= 2 && 10 * c.failures > c.trials; };
  const Counts d = no_answers(findings_.deployed, cell);
  const Counts r = no_answers(findings_.reference, cell);
  if (often(d) && often(r))
    return fmt::format(
        "{}: partly, the reference gives no answer to {} of {} prompts, for want of room (answer_tokens, "
        "thinking_tokens)",
        cell, r.failures, r.trials);
  if (cell != kConversationCell) return std::nullopt;
  const Counts wrong = pooled(findings_.reference, cell);
  if (often(pooled(findings_.deployed, cell)) && often(wrong))
    return fmt::format("{}: partly, the reference fails {} of {} prompts too, so that nothing can be seen in it", cell,
                       wrong.failures, wrong.trials);
  return std::nullopt;
}

std::vector<std::string> Replay::cells_failing_everywhere() const {
  std::vector<std::string> cells;
  for (const std::string& cell : plan_.cells) {
    if (is_weak(cell) || why_unusable(cell)) continue;
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
  Counts good;  // what passing looks like: the usable cells that do not fail
  for (const std::string& c : plan_.cells)
    if (!is_weak(c) && !why_unusable(c) && std::find(cells.begin(), cells.end(), c) == cells.end())
      good += pooled(findings_.reference, c);
  // The cheapest launch of those whose probe fails often enough to tell.
  std::string cell;
  std::optional<Design> design;
  for (const std::string& c : cells) {
    const auto candidate = choose_design(pooled(findings_.deployed, c), good);
    if (candidate && (!design || candidate->trials * cost_of(c) < design->trials * cost_of(cell))) {
      design = candidate;
      cell = c;
    }
  }
  if (!design)
    stop("inconclusive", fmt::format("{} fails as deployed and on the reference, too rarely to search", cells.front()));
  std::vector<std::size_t> all(plan_.deployment.switches.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  begin_group_test({.suspects = all, .bad = findings_.deployed, .both_sides = true, .ranks = ranks_of(all)});
  for (const LaunchOutcome& o : outcomes_before(cell, *design)) test_->add(o);
  const auto settled = group_search({"search/base/test", items_of("search/base", cell, design->trials),
                                     design->threshold, findings_.deployed, findings_.deployed});
  if (settled && settled->hypothesis.kind == Hypothesis::Class::base) {
    base_ = settled;
    stop("unexplained",
         fmt::format("{} fails whatever the switches, the reference included: either a step under no switch is broken, "
                     "or the model cannot answer this probe{}",
                     cell, or_unswitchable()),
         "base");
  }
  if (settled && !settled->hypothesis.members.empty()) {
    // From the sides that break it to their opposites, all else as deployed.
    Symptom found{cell, findings_.deployed, findings_.deployed, *design, 0};
    for (std::size_t i = 0; i < settled->sides.size(); ++i) {
      found.bad[settled->hypothesis.members[i]] = settled->sides[i];
      found.good[settled->hypothesis.members[i]] = !settled->sides[i];
    }
    if (check_variant(plan_.deployment, found.bad) && check_variant(plan_.deployment, found.good)) return found;
  }
  stop("inconclusive",
       fmt::format("{} fails as deployed and on the reference, and no rule explains which variants do not: the most "
                   "probable is {}, posterior {:.2f}{}",
                   cell, named(test_->best()), test_->best().posterior, or_unswitchable()));
}

}  // namespace plumb::investigator
