#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "investigator/ranked_switches.h"
#include "investigator/replay.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;
using Judgement = Wanted::Judgement;
using Status = LaunchRecord::Status;

constexpr int kMaxReplays = 8;
constexpr int kMinReplays = 3;
constexpr int kMaxTests = 48;           // launches of one search
constexpr std::size_t kMaxRefused = 8;  // of them that do not launch
constexpr double kSettled = 0.97;       // posterior at which a search ends

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
  // Where requests turn switches, the tests go on in the processes of the second: there the symptom is known to show.
  const bool shared = can_share();
  if (shared) once_more(round, "good", r.good, "the passing variant once more");
  once_more(round, "bad", r.bad, "the failing variant once more");
  if (!shared) once_more(round, "good", r.good, "the passing variant once more");
  try {
    search(round);
    confirm(round);
  } catch (const Stop& stopped) {
    if (stopped.verdict == "inconclusive" && findings_.budget.empty() && findings_.unmeasured.empty())
      judge_joint(round);
    throw;
  }
  fill_rows(round);
  return remaining_symptom(round);
}

Items Replay::search_items(int round) const {
  if (!replay_items_.empty()) return replay_items_;
  return items_of(fmt::format("search/{}", round), current_->cell, fresh_items_);
}

void Replay::once_more(int round, const std::string& name, const Variant& variant, const std::string& why) {
  const Items items = search_items(round);
  const LaunchRecord* launch = want(fmt::format("search/{}/{}/1", round, name), variant, with_repeated(items), why,
                                    {current_->threshold, items.size(), "it fails", "it passes"});
  if (launch == nullptr) stop("inconclusive", "could not be measured: " + last_failure_);
  outcomes_.push_back({variant, count(*launch, items).failures >= current_->threshold, launch->process()});
}

bool Replay::can_share() const {
  const auto& switches = plan_.deployment.switches;
  return plan_.deployment.restart == "allowed" &&
         std::any_of(switches.begin(), switches.end(), [](const SwitchSpec& s) { return s.apply == "request"; });
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

void Replay::search(int round) {
  Round& r = *current_;
  const std::vector<std::size_t> suspects = difference(r.bad, r.good);
  begin_group_test({.suspects = suspects, .bad = r.bad, .both_sides = false, .ranks = ranks_of(suspects)});
  for (const LaunchOutcome& o : all_outcomes()) test_->add(o);
  const auto settled =
      group_search({fmt::format("search/{}/test", round), search_items(round), r.threshold, r.bad, r.good});
  fill_rows(round);
  if (!settled || settled->hypothesis.members.empty()) {
    const GroupTest::Belief best = test_->best();
    stop(
        "inconclusive",
        fmt::format("no switch, and no set of them, explains the launches: the most probable rule ({}) has a posterior "
                    "of {:.2f}, `other` {:.2f}",
                    named(best), best.posterior, test_->of_other()));
  }
  r.hypothesis = settled->hypothesis;
  r.posterior = test_->of(r.hypothesis, bad_sides());
}

std::vector<bool> Replay::bad_sides() const {
  std::vector<bool> sides;
  for (const std::size_t s : current_->hypothesis.members) sides.push_back(current_->bad[s]);
  return sides;
}

std::vector<double> Replay::ranks_of(const std::vector<std::size_t>& suspects) const {
  const auto& ranks = plan_.deployment.given.ranks;
  return ranks == nullptr ? std::vector<double>() : ranks->weights(suspects);
}

void Replay::begin_group_test(GroupTest::Options options) {
  if (options.suspects.size() > GroupTest::kMostSuspects)
    stop("inconclusive",
         fmt::format("{} switches may be guilty, more than the {} of one search: set some of them alike "
                     "in the deployment and the reference",
                     options.suspects.size(), GroupTest::kMostSuspects));
  suspects_ = options.suspects;
  test_.emplace(std::move(options));
}

std::string Replay::named(const GroupTest::Belief& belief) const {
  switch (belief.hypothesis.kind) {
    case Class::none:
      return "failures by chance";
    case Class::base:
      return "every variant fails";
    case Class::other:
      return "none of the rules";
    case Class::any_of:
    case Class::all_of:
      break;
  }
  std::vector<std::string> names;
  for (std::size_t i = 0; i < belief.sides.size(); ++i)
    names.push_back(fmt::format("{} {}", plan_.deployment.switches[belief.hypothesis.members[i]].name,
                                belief.sides[i] ? "on" : "off"));
  return fmt::format("{}", fmt::join(names, belief.hypothesis.kind == Class::any_of ? " or " : " and "));
}

bool Replay::is_probable(const GroupTest::Belief& belief) const {
  if (belief.posterior < kSettled || belief.posterior_flat < kSure || test_->of_other() > 1 - kSure) return false;
  return test_->predictive_check(belief.hypothesis, belief.sides) >= kPredictiveP;
}

bool Replay::is_settled(const GroupTest::Belief& belief) const {
  // What only launches turn was told from them; what requests turn rests on one launch while all that was asked in its
  // processes failed, or passed.
  const auto by_request = [&](std::size_t s) { return plan_.deployment.switches[s].apply == "request"; };
  const auto& members = belief.hypothesis.members;
  const bool needs_contrast = std::any_of(members.begin(), members.end(), by_request);
  return is_probable(belief) && (!needs_contrast || test_->contrasted());
}

std::optional<GroupTest::Belief> Replay::group_search(const Search& search) {
  std::vector<Variant> refused;
  for (int i = 1; i <= kMaxTests && refused.size() <= kMaxRefused; ++i) {
    const std::string label = fmt::format("{}/{}", search.prefix, i);
    // Where the history went on, nothing was settled yet; damage() computes that again.
    if (!trusting_ || history_.find(label) == nullptr)
      if (GroupTest::Belief best = test_->best(); is_settled(best)) return best;
    const auto next = next_test(search, label, refused);
    if (!next) break;
    const Question q = question(search, next->variant);
    const LaunchRecord* launch =
        want(label, next->variant, search.items, q.text,
             {search.threshold, search.items.size(), q.cures ? "no" : "yes", q.cures ? "yes" : "no"}, next->shares);
    if (launch == nullptr) {
      ask_openly("could not be measured: " + last_failure_);
      refused.push_back(next->variant);
      continue;
    }
    const LaunchOutcome outcome{next->variant, count(*launch, search.items).failures >= search.threshold,
                                launch->process()};
    outcomes_.push_back(outcome);
    test_->add(outcome);
  }
  if (GroupTest::Belief best = test_->best(); is_settled(best)) return best;
  return std::nullopt;
}

const LaunchRecord* Replay::running() const {
  const LaunchRecord* last = seen_.empty() ? nullptr : seen_.back().launch;
  return can_share() && last != nullptr && last->label.starts_with("search/") && last->status != Status::died &&
                 usable(*last, seen_.back().items)
             ? last
             : nullptr;
}

std::optional<Replay::NextTest> Replay::next_test(const Search& search, const std::string& label,
                                                  const std::vector<Variant>& refused) const {
  // What the history holds was chosen so; damage() computes it again.
  if (const LaunchRecord* launch = history_.find(label); trusting_ && launch != nullptr)
    return NextTest{launch->variant};
  const auto fresh = best_variant(search, label, refused, nullptr);
  const LaunchRecord* in = running();
  if (in == nullptr) return fresh ? std::optional(NextTest{*fresh}) : std::nullopt;
  if (const GroupTest::Belief best = test_->best();
      !outcomes_.empty() && !best.hypothesis.members.empty() && is_probable(best)) {
    // Not settled for want of a contrast: the same processes as what the rule calls good, or bad.
    Variant other = in->variant;
    const bool bad = !outcomes_.back().failed;
    for (std::size_t i = 0; i < best.sides.size(); ++i) other[best.hypothesis.members[i]] = best.sides[i] == bad;
    if (same_processes(plan_.deployment, in->variant, other) && check_variant(plan_.deployment, other))
      return NextTest{other, true};
  }
  const auto asked = best_variant(search, label, refused, in);
  if (!asked) return fresh ? std::optional(NextTest{*fresh}) : std::nullopt;
  if (!fresh) return NextTest{*asked, true};
  const bool shares = test_->information(*asked, in->process()) / cost_of_test(*asked, in) >=
                      test_->information(*fresh) / cost_of_test(*fresh, nullptr);
  return shares ? NextTest{*asked, true} : NextTest{*fresh, false};
}

std::optional<Variant> Replay::best_variant(const Search& search, const std::string& label,
                                            const std::vector<Variant>& refused, const LaunchRecord* in) const {
  const Deployment& d = plan_.deployment;
  GroupTest::Choice choice;
  choice.starts = {search.bad, search.good};
  choice.refused = refused;
  choice.seed = derive_seed(plan_.seed, label);
  if (in != nullptr) {
    choice.process = in->process();
    choice.starts = {in->variant};
    for (const Variant& end : {search.bad, search.good})
      if (same_processes(d, in->variant, end)) choice.starts.push_back(end);
  }
  choice.turn = [&](Variant v, std::size_t s, bool side) -> std::optional<Variant> {
    if (!side && !d.switches[s].working_off) return std::nullopt;
    if (in != nullptr && d.switches[s].apply != "request") return std::nullopt;
    auto turned = with_side(d, std::move(v), s, side);
    if (!turned || is_known_infeasible(*turned)) return std::nullopt;
    for (const std::size_t other : difference(*turned, search.bad))
      if (std::find(suspects_.begin(), suspects_.end(), other) == suspects_.end()) return std::nullopt;
    if (in != nullptr && !same_processes(d, *turned, in->variant)) return std::nullopt;
    return turned;
  };
  choice.cost = [this, in](const Variant& v) { return cost_of_test(v, in); };
  return test_->next(choice);
}

double Replay::cost_of_test(const Variant& variant, const LaunchRecord* in) const {
  double start_s = 0;
  double ask_s = 0;
  int started = 0;
  for (const Seen& seen : seen_) {
    start_s += seen.launch->ready_s;
    started += seen.launch->host == 0 ? 1 : 0;
    for (const TrialRecord& t : seen.launch->trials)
      for (const StepRecord& step : t.steps) ask_s += step.seconds;
  }
  const auto seen = static_cast<double>(std::max<std::size_t>(1, seen_.size()));
  start_s /= std::max(1, started);
  ask_s /= seen;
  // In whole launches and rounded seconds: equal seeds choose alike, however fast the machine was.
  const auto usual = [](double s) { return std::max(1.0, std::round(s)); };
  if (in != nullptr) return usual(ask_s) / (usual(ask_s) + usual(start_s));
  double further_s = 0;
  for (const std::size_t s : difference(variant, findings_.deployed)) further_s += plan_.deployment.switches[s].cost_s;
  return 1 + further_s / usual(start_s + ask_s);
}

Replay::Question Replay::question(const Search& search, const Variant& variant) const {
  constexpr std::size_t kNamed = 3;
  const auto from_bad = difference(variant, search.bad);
  const auto from_good = difference(variant, search.good);
  // Where nothing passes there is only a failing variant to start from.
  const bool cures = search.bad == search.good || from_bad.size() <= from_good.size();
  const auto& turned = cures ? from_bad : from_good;
  std::string list;
  for (std::size_t i = 0; i < std::min(kNamed, turned.size()); ++i)
    list += fmt::format("{}{} {}", i == 0 ? "" : ", ", plan_.deployment.switches[turned[i]].name,
                        variant[turned[i]] ? "on" : "off");
  if (turned.size() > kNamed) list += fmt::format(" and {} more", turned.size() - kNamed);
  if (list.empty())
    return {fmt::format("the {} variant again: does it still fail?", cures ? "failing" : "passing"), false};
  return {fmt::format("does turning {} {}?", list, cures ? "cure" : "harm"), cures};
}

void Replay::fill_rows(int round) {
  Round& r = *current_;
  r.rows.clear();
  const std::vector<double> marginals = test_->marginals();
  const auto outcome_of = [&](const std::optional<Variant>& variant, Counts& trials) {
    std::optional<bool> failed;
    if (!variant) return failed;
    for (const Seen& seen : seen_) {
      const std::string& label = seen.launch->label;
      if (seen.launch->variant != *variant) continue;
      if (!label.starts_with(fmt::format("search/{}/", round)) && !label.starts_with(fmt::format("confirm/{}/", round)))
        continue;
      Items of_cell;
      for (const auto& item : seen.items)
        if (item.first.cell == r.cell) of_cell.push_back(item);
      const Counts c = count(*seen.launch, of_cell);
      if (c.trials == 0) continue;
      trials += c;
      failed = failed.value_or(false) || c.failures * r.trials_per_launch >= r.threshold * c.trials;
    }
    return failed;
  };
  for (std::size_t i = 0; i < suspects_.size(); ++i) {
    SwitchRow row;
    row.index = suspects_[i];
    row.posterior = marginals[i];
    const auto cure = with_side(plan_.deployment, r.bad, row.index, r.good[row.index]);
    const auto harm = with_side(plan_.deployment, r.good, row.index, r.bad[row.index]);
    if (const auto failed = outcome_of(cure, row.cure)) row.cures = !*failed;
    row.harms = outcome_of(harm, row.harm);
    if (!cure || !harm) {
      row.note = "cannot be turned alone: requires or conflicts forbid it";
      ask_openly(fmt::format("{}: {}", plan_.deployment.switches[row.index].name, row.note));
    }
    r.rows.push_back(row);
  }
}

}  // namespace plumb::investigator
