#include "investigator/replay.h"

#include <algorithm>

namespace plumb::investigator {
namespace {

using Status = LaunchRecord::Status;
using Judgement = Wanted::Judgement;

constexpr int kMaxRounds = 3;

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

}  // namespace

NextStep Replay::run() {
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

Findings Replay::so_far() {
  try {
    investigate();
  } catch (const Pending&) {
    conclude("inconclusive", "none");
  } catch (const Stop& stop) {
    conclude(stop.verdict, stop.klass);
  }
  return std::move(findings_);
}

std::optional<std::string> Replay::damage() {
  for (const LaunchRecord& l : history_.launches)
    if (l.variant.size() != plan_.deployment.switches.size())
      return fmt::format("launch {}: its variant has {} sides, the deployment {} switches", l.id, l.variant.size(),
                         plan_.deployment.switches.size());
  trusting_ = false;
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
    if (!l.scores.empty() && !scored_.contains(&l))
      return fmt::format("launch {}: nothing asks for its scored texts", l.id);
  }
  return std::nullopt;
}

void Replay::stop(std::string verdict, std::string reason, std::string klass) {
  findings_.reasons.push_back(std::move(reason));
  throw Stop{std::move(verdict), std::move(klass)};
}

void Replay::ask_openly(const std::string& question) {
  auto& all = findings_.open_questions;
  if (std::find(all.begin(), all.end(), question) == all.end()) all.push_back(question);
}

void Replay::check_budget(const std::string& label) {
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

const TrialRecord* Replay::trial_of(const LaunchRecord& launch, const std::pair<ItemId, Wording>& item) {
  for (const TrialRecord& t : launch.trials)
    if (t.item == item.first && t.wording == item.second) return &t;
  return nullptr;
}

const LaunchRecord& Replay::want_once(const std::string& label, const Variant& variant, const Items& items,
                                      const std::string& why, const Judgement& judgement, bool shares) {
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
    throw Pending{{label, variant, items, why, judgement, {}, shares}};
  }
  if (!complete && launch->status == Status::done)
    throw Damaged{fmt::format("launch {}: it ended as done, but lacks trials", launch->id)};
  seen_.push_back({launch, items});
  last_wanted_ = {label, variant, items, why, judgement};
  return *launch;
}

bool Replay::usable(const LaunchRecord& launch, const Items& items) {
  if (launch.status == Status::failed || launch.status == Status::infeasible) return false;
  std::size_t resolved = 0;
  for (const auto& item : items)
    if (const TrialRecord* t = trial_of(launch, item)) resolved += t->grade != Grade::infrastructure ? 1 : 0;
  return 2 * resolved >= items.size();
}

std::string Replay::no_answer_of(const LaunchRecord& launch) {
  for (const TrialRecord& t : launch.trials)
    for (const StepRecord& s : t.steps)
      if (s.grade == Grade::infrastructure) return ": " + (s.detail.empty() ? s.text : s.detail);
  return "";
}

void Replay::stop_unmeasured() {
  findings_.unmeasured = last_failure_;
  stop("inconclusive", "could not be measured: " + last_failure_);
}

bool Replay::all_resolved(const LaunchRecord& launch, const Items& items) {
  return std::all_of(items.begin(), items.end(), [&](const auto& item) {
    const TrialRecord* t = trial_of(launch, item);
    return t != nullptr && t->grade != Grade::infrastructure;
  });
}

const LaunchRecord* Replay::want(const std::string& label, const Variant& variant, const Items& items,
                                 const std::string& why, const Judgement& judgement, bool shares) {
  const LaunchRecord* best = nullptr;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const std::string name = attempt == 1 ? label : fmt::format("{}/retry", label);
    // Earlier versions took such a launch as it was: a history that went on without another try is left so.
    if (best != nullptr && history_.find(name) == nullptr && best != &history_.launches.back()) break;
    const LaunchRecord& launch = want_once(name, variant, items, why, judgement, shares && attempt == 1);
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

Counts Replay::count(const LaunchRecord& launch, const Items& items) {
  Counts c;
  for (const auto& item : items)
    if (const TrialRecord* t = trial_of(launch, item); t != nullptr && t->grade != Grade::infrastructure)
      c += {is_failure(t->grade) ? 1 : 0, 1};
  return c;
}

Items Replay::items_of(const std::string& set, const std::string& cell, int size) const {
  Items items;
  for (int i = 0; i < size; ++i)
    items.push_back({{cell, derive_seed(plan_.seed, fmt::format("{}/{}/{}", set, cell, i))}, *findings_.wording});
  return items;
}

Items Replay::whole_set(const std::string& set) const {
  Items items;
  for (const std::string& cell : plan_.cells) {
    if (is_weak(cell)) continue;
    for (auto& item : items_of(set, cell, set_size(cell))) items.push_back(std::move(item));
  }
  return items;
}

Items Replay::repeated_items() const {
  Items items;
  for (const std::string& cell : plan_.cells)
    if (!is_weak(cell)) items.push_back(items_of("ground/1", cell, 1).front());
  return items;
}

Counts Replay::pooled(const Variant& variant, const std::string& cell) const {
  std::set<std::uint64_t> counted;
  Counts c;
  for (const Seen& seen : seen_) {
    if (seen.launch->variant != variant || seen.launch->label.starts_with("search/")) continue;
    for (const auto& item : seen.items) {
      if (item.first.cell != cell || item.second != findings_.wording) continue;
      const TrialRecord* t = trial_of(*seen.launch, item);
      if (t == nullptr || t->grade == Grade::infrastructure || !counted.insert(item.first.seed).second) continue;
      c += {is_failure(t->grade) ? 1 : 0, 1};
    }
  }
  return c;
}

void Replay::investigate() {
  choose_wording();
  ground();
  std::optional<Symptom> symptom = find_symptom();
  if (!symptom && !one_variant() && cells_failing_everywhere().empty() &&
      failures_in(findings_.deployed) + failures_in(findings_.reference) > 0) {
    hunt();
    symptom = find_symptom();
  }
  if (!symptom && !cells_failing_everywhere().empty()) symptom = look_for_a_passing_variant();
  if (!symptom) symptom = clean_or_not();
  isolate_all(*symptom);
}

void Replay::isolate_all(Symptom symptom) {
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

}  // namespace plumb::investigator
