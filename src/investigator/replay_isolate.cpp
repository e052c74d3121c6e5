#include <algorithm>

#include "investigator/replay.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;
using Judgement = Wanted::Judgement;

constexpr int kMaxReplays = 8;
constexpr int kMinReplays = 3;
constexpr int kMaxMembers = 3;
constexpr int kRepeatsWhenFlaky = 3;

}  // namespace

std::optional<Replay::Symptom> Replay::isolate(int round, const Symptom& symptom) {
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

Items Replay::search_items(int round) const {
  if (!replay_items_.empty()) return replay_items_;
  return items_of(fmt::format("search/{}", round), current_->cell, fresh_items_);
}

bool Replay::fails(const std::string& label, const Variant& variant, int repeats, const std::string& why,
                   Counts* counts, bool* measured, Judgement answers) {
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

Items Replay::with_repeated(Items items) const {
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

void Replay::search(int round, int repeats) {
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

std::optional<bool> Replay::turned(int round, int repeats, const std::string& direction, const Variant& base,
                                   std::size_t s, bool side, SwitchRow& row) {
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

Hypothesis Replay::classify(const std::vector<SwitchRow>& rows) {
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

}  // namespace plumb::investigator
