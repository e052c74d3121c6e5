#pragma once

// Simulated worlds, for tests and `plumb bench isolate`: what deployments with a planted fault would answer, without a
// process.

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "investigator/investigation.h"

namespace plumb::investigator::simulation {

inline Deployment switches_all_on(int count) {
  Deployment d;
  d.name = "simulated";
  d.processes.push_back({.name = "server",
                         .command = {"server"},
                         .env = {},
                         .cwd = {},
                         .after = {},
                         .ready_http = {},
                         .ready_log_regex = {}});
  d.endpoints.push_back({.url = "http://127.0.0.1:1", .model = {}, .key_env = {}, .headers = {}});
  for (int i = 0; i < count; ++i) {
    SwitchSpec s;
    s.name = "s" + std::to_string(i);
    d.switches.push_back(s);
  }
  return d;
}

/// The same with every switch turned by requests.
inline Deployment turned_by_requests(Deployment d) {
  for (SwitchSpec& s : d.switches) s.apply = "request";
  return d;
}

/// A fault of a simulated deployment.
struct SimulatedFault {
  std::vector<std::pair<std::size_t, bool>> literals{};  // (switch, side); empty: under no switch
  bool all_needed = false;                               // and instead of or
  std::set<std::string> cells{};                         // where it shows; empty: in all but "short"
  double trial_rate = 1;                                 // of its trials that fail, fixed by the prompt
  double launch_rate = 1;                                // of its launches in which it shows at all
};

/// How switches of a simulated deployment move log-probabilities: where all literals hold, each token of each text
/// moves by an amount of its own, whose mean square over tokens is about 2 d. Terms of one direction move the same
/// tokens alike (sign < 0: against each other), those of different ones independently, so that their D adds.
struct SimulatedShift {
  std::vector<std::pair<std::size_t, bool>> literals{};
  double d = 0;
  int direction = 0;
  double sign = 1;
};

/// Answers launches from a list of faults.
struct SimulatedWorld {
  std::vector<SimulatedFault> faults{};
  std::uint64_t seed = 1;
  double noise = 0;  // trials that fail for no reason, anew each time
  bool reports_hits = true;
  bool offers_scores = false;  // log-probabilities
  std::vector<SimulatedShift> shifts{};
  double score_noise = 0;    // D that repeated launches have from each other, about
  double sum_breaks_at = 0;  // all but "short" fails where the D of the shifts adds up to this; 0: never
  bool by_request = false;   // requests turn the switches, and variants may share processes
  /// Whether a trial of a launch fails, where that is not drawn from `faults`; may be empty.
  std::function<bool(const LaunchRecord&, const ItemId&)> fails{};
  int asked_launches = 0;
  std::function<bool(const Variant&)> does_not_start = {};

  bool at_fault(const SimulatedFault& f, const Variant& v) const {
    if (f.literals.empty()) return true;
    bool any = false;
    bool all = true;
    for (const auto& [s, side] : f.literals) {
      any |= v[s] == side;
      all &= v[s] == side;
    }
    return f.all_needed ? all : any;
  }

  /// Appends to the history what `wanted` would have brought.
  void answer(const Wanted& wanted, History& history) {
    if (history.launches.empty() || history.launches.back().label != wanted.label) {
      if (!history.launches.empty() && history.launches.back().status == LaunchRecord::Status::open)
        history.launches.back().status = LaunchRecord::Status::done;
      LaunchRecord l;
      l.id = static_cast<std::int64_t>(history.launches.size()) + 1;
      l.label = wanted.label;
      l.variant = wanted.variant;
      l.starts = wanted.shares ? 0 : 1;
      if (wanted.shares) l.host = history.launches.back().process();
      if (does_not_start && does_not_start(wanted.variant)) {
        l.status = LaunchRecord::Status::infeasible;
        l.message = "process server ended: assertion failed";
      }
      history.launches.push_back(l);
      asked_launches += l.starts;
    }
    LaunchRecord& l = history.launches.back();
    if (l.status == LaunchRecord::Status::infeasible) return;
    Rng rng(derive_seed(seed, wanted.label));
    std::vector<bool> shows;
    for (std::size_t i = 0; i < faults.size(); ++i) {
      const SimulatedFault& f = faults[i];
      if (!by_request) {
        shows.push_back(at_fault(f, l.variant) && rng.uniform() < f.launch_rate);
        continue;
      }
      // A launch's coin is that of its processes, whichever variant they are asked as.
      Rng of_processes(derive_seed(seed, fmt::format("processes/{}/{}", l.process(), i)));
      shows.push_back(of_processes.uniform() < f.launch_rate && at_fault(f, l.variant));
    }
    for (const auto& [item, wording] : wanted.items) {
      bool known = false;
      for (const TrialRecord& t : l.trials) known |= t.item == item && t.wording == wording;
      if (known) continue;
      bool failed = rng.uniform() < noise || (fails && fails(l, item));
      failed |= sum_breaks_at > 0 && item.cell != "short" && sum_of_shifts(l.variant) >= sum_breaks_at;
      for (std::size_t i = 0; i < faults.size(); ++i) {
        const bool visible = faults[i].cells.empty() ? item.cell != "short" : faults[i].cells.contains(item.cell);
        Rng by_prompt(derive_seed(item.seed, "fault" + std::to_string(i)));
        failed |= shows[i] && visible && by_prompt.uniform() < faults[i].trial_rate;
      }
      l.trials.push_back(trial(item, wording, failed && item.cell != "repetition"));
      history.elapsed_s += 0.1;
    }
    for (const auto& [item, wording] : wanted.texts) l.scores.push_back(score(item, wording, l));
  }

  static bool holds(const SimulatedShift& s, const Variant& v) {
    return std::all_of(s.literals.begin(), s.literals.end(), [&](const auto& l) { return v[l.first] == l.second; });
  }

  double sum_of_shifts(const Variant& v) const {
    double sum = 0;
    for (const SimulatedShift& s : shifts) sum += holds(s, v) ? s.d : 0;
    return sum;
  }

  ScoreRecord score(const ScoreItem& item, Wording wording, const LaunchRecord& l) const {
    constexpr int kTokens = 48;
    ScoreRecord r;
    r.item = item;
    r.wording = wording;
    r.expected_tokens = item.length;
    if (!offers_scores) {
      r.scores.status = Scores::Status::not_offered;
      r.scores.message = "no log-probabilities here";
      return r;
    }
    ScoreItem prompt = item;
    prompt.state = CacheState::cold;
    Rng text(derive_seed(seed, name_of(prompt)));
    const double scale = std::exp(0.3 * text.normal());
    std::vector<double> values(kTokens);
    for (double& value : values) value = -5 - 2 * text.uniform();
    const auto move = [&](const std::string& label, double amount) {
      Rng direction(derive_seed(seed, label + name_of(prompt)));
      for (double& value : values) value += amount * direction.normal();
    };
    for (const SimulatedShift& s : shifts)
      if (holds(s, l.variant)) move(std::to_string(s.direction), s.sign * scale * std::sqrt(2 * s.d));
    if (score_noise > 0) move("noise" + l.label + std::string(state_name(item.state)), std::sqrt(score_noise));
    r.scores.status = Scores::Status::measured;
    r.scores.tokens_hash = "tokens";
    r.scores.prompt_tokens = item.length;
    r.scores.cached_tokens = item.state == CacheState::hit ? 128 : 0;
    if (item.path == ScorePath::scored)
      r.scores.log_probabilities = values;
    else
      for (const double value : values) r.scores.generated.push_back({{"t", value}, {{"t", value}}});
    return r;
  }

  TrialRecord trial(const ItemId& item, Wording wording, bool failed) const {
    TrialRecord t;
    t.item = item;
    t.wording = wording;
    StepRecord s;
    s.graded = true;
    s.grade = failed ? Grade::wrong : Grade::right;
    s.expected = "K7-42-QX";
    s.text = failed ? " A1-11-AA" : " K7-42-QX";
    s.prompt_tokens = s.expected_tokens = item.cell == "short" ? 55 : item.cell.starts_with("needle@1024") ? 1024 : 400;
    s.wants_hit = item.cell == "hit";
    if (reports_hits) s.cached_tokens = 128;
    t.steps = {s};
    t.grade = worst_grade(t.steps);
    return t;
  }
};

inline Plan plan_of(const Deployment& deployment, std::uint64_t seed) {
  Plan plan;
  plan.deployment = deployment;
  plan.seed = seed;
  plan.cells = cells_of("all", {}).value();
  return plan;
}

inline constexpr int kMaxSteps = 500;

struct Played {
  Findings findings;
  History history;
};

/// Plays an investigation to its end; `audited`: and checks that its history is one of the plan.
inline Played play(const Plan& plan, SimulatedWorld& world, History history = {}, bool audited = true) {
  for (int i = 0; i < kMaxSteps; ++i) {
    NextStep next = next_step(plan, history);
    if (!next.wanted) {
      const auto damage = audited ? damage_of(plan, history) : std::nullopt;
      if (damage) fmt::print(stderr, "{}\n", *damage);
      CHECK(!damage);
      return {next.findings, history};
    }
    world.answer(*next.wanted, history);
  }
  CHECK(false);  // an investigation that does not end
  return {};
}

}  // namespace plumb::investigator::simulation

namespace plumb::investigator::testing {
using namespace simulation;  // NOLINT: the name that tests use
}
