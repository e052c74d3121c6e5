#pragma once

// Simulated worlds, for tests and `plumb bench isolate`: what deployments with a planted fault would answer, without a
// process.

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

/// Answers launches from a list of faults.
struct SimulatedWorld {
  std::vector<SimulatedFault> faults{};
  std::uint64_t seed = 1;
  double noise = 0;  // trials that fail for no reason, anew each time
  bool reports_hits = true;
  bool by_request = false;  // requests turn the switches, and variants may share processes
  /// Whether a trial of a launch fails, where that is not drawn from `faults`; may be empty.
  std::function<bool(const LaunchRecord&, const ItemId&)> fails{};
  int asked_launches = 0;

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
      history.launches.push_back(l);
      asked_launches += l.starts;
    }
    LaunchRecord& l = history.launches.back();
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
      for (std::size_t i = 0; i < faults.size(); ++i) {
        const bool visible = faults[i].cells.empty() ? item.cell != "short" : faults[i].cells.contains(item.cell);
        Rng by_prompt(derive_seed(item.seed, "fault" + std::to_string(i)));
        failed |= shows[i] && visible && by_prompt.uniform() < faults[i].trial_rate;
      }
      l.trials.push_back(trial(item, wording, failed && item.cell != "repetition"));
      history.elapsed_s += 0.1;
    }
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
