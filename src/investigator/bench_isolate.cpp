#include "investigator/bench_isolate.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/rng.h"
#include "investigator/bench_scores.h"
#include "investigator/older_methods.h"
#include "investigator/simulated_worlds.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;
using simulation::SimulatedFault;
using simulation::SimulatedWorld;

// One kind of world: what is planted, and what is right to say of it.
struct Kind {
  std::string name;
  bool modelled;
  std::string verdict;  // that is right
  int culprits;         // how many switches are drawn
  bool off_side;        // they break at their off side
  bool together;        // and instead of or
  double trial_rate;
  double launch_rate;
  double noise;
  bool masked;  // a further switch, deployed off, hides the fault when on
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds{
      {"one culprit", true, "confirmed", 1, false, false, 1, 1, 0, false},
      {"one culprit, half of the prompts", true, "confirmed", 1, false, false, 0.5, 1, 0, false},
      {"two culprits, each enough", true, "confirmed", 2, false, false, 1, 1, 0, false},
      {"two culprits, only together", true, "confirmed", 2, false, true, 1, 1, 0, false},
      {"off side broken", true, "confirmed", 1, true, false, 1, 1, 0, false},
      {"masked by a switch that is off", true, "confirmed", 1, false, false, 1, 1, 0, true},
      {"in 80 % of launches", true, "confirmed", 1, false, false, 1, 0.8, 0, false},
      {"under no switch", true, "unexplained", 0, false, false, 1, 1, 0, false},
      {"clean", true, "clean", 0, false, false, 0, 0, 0, false},
      {"clean, 2 % of trials fail", false, "clean", 0, false, false, 0, 0, 0.02, false},
      {"in 60 % of launches", false, "confirmed", 1, false, false, 1, 0.6, 0, false},
      {"two culprits, each in 60 % of launches", false, "confirmed", 2, false, false, 1, 0.6, 0, false},
      {"three, only together", false, "confirmed", 3, false, true, 1, 1, 0, false},
      {"weak and noisy", false, "confirmed", 1, false, false, 0.4, 1, 0.05, false},
      {"off side broken in half of the launches", false, "confirmed", 1, true, false, 1, 0.5, 0, false},
      {"under no switch, half of the launches", false, "unexplained", 0, false, false, 1, 0.5, 0, false},
      {"under no switch, 30 % of launches", false, "unexplained", 0, false, false, 1, 0.3, 0, false},
  };
  return kKinds;
}

struct World {
  Deployment deployment;
  SimulatedWorld simulated;
  std::set<std::size_t> culprits;
  std::vector<bool> sides;  // of the culprits, ascending
};

World make_world(const Kind& kind, const IsolateBenchOptions& options, bool by_request, std::uint64_t seed) {
  const auto switches = static_cast<std::uint64_t>(options.switches);
  World w;
  w.deployment = simulation::switches_all_on(options.switches);
  if (by_request) w.deployment = simulation::turned_by_requests(std::move(w.deployment));
  w.simulated.by_request = by_request;
  Rng rng(derive_seed(seed, "world"));
  while (static_cast<int>(w.culprits.size()) < kind.culprits) w.culprits.insert(rng.below(switches));
  w.sides.assign(w.culprits.size(), !kind.off_side);
  SimulatedFault fault{.all_needed = kind.together, .trial_rate = kind.trial_rate, .launch_rate = kind.launch_rate};
  for (const std::size_t s : w.culprits) fault.literals.emplace_back(s, !kind.off_side);
  if (kind.masked) {
    std::size_t mask = 0;
    do mask = rng.below(switches);
    while (w.culprits.contains(mask));
    w.deployment.switches[mask].deployed_on = false;
    fault.literals.emplace_back(mask, false);
    fault.all_needed = true;
  }
  w.simulated.seed = seed;
  w.simulated.noise = kind.noise;
  if (kind.launch_rate > 0 && !kind.together && kind.culprits > 1) {
    // Each culprit shows in launches of its own.
    for (const auto& literal : fault.literals) {
      SimulatedFault single = fault;
      single.literals = {literal};
      w.simulated.faults.push_back(single);
    }
  } else if (kind.launch_rate > 0) {
    w.simulated.faults = {fault};
  }
  return w;
}

Hypothesis truth_of(const Kind& kind, const World& w) {
  return {kind.together && kind.culprits > 1 ? Class::all_of : Class::any_of, {w.culprits.begin(), w.culprits.end()}};
}

void play_one(const Kind& kind, const IsolateBenchOptions& options, bool by_request, std::uint64_t seed,
              WorldScore& score) {
  World w = make_world(kind, options, by_request, seed);
  const auto played = simulation::play(simulation::plan_of(w.deployment, seed), w.simulated, {}, false);
  Played scored{played.findings.verdict, kind.verdict, {}, kind.culprits};
  std::size_t i = 0;
  for (const std::size_t s : w.culprits)
    scored.planted.emplace(w.deployment.switches[s].name, w.sides[i++] ? "on" : "off");
  count_in(score, scored);
  if (kind.culprits > 0) {
    const auto suspects = difference(as_deployed(w.deployment), reference_variant(w.deployment));
    const GroupTest test({.suspects = suspects, .bad = as_deployed(w.deployment), .both_sides = false, .ranks = {}});
    // From the failing variant a culprit at its off side is as hard to find as one at its on side.
    score.bits += test.bits_to(truth_of(kind, w), std::vector<bool>(w.culprits.size(), true));
  }
}

// Searches alone, whose truth is drawn from the prior of the model, rates included.
std::vector<CalibrationBin> calibrate(const IsolateBenchOptions& options) {
  std::vector<CalibrationBin> bins = calibration_bins();
  const auto n = static_cast<std::size_t>(options.switches);
  for (int run = 0; run < options.investigations; ++run) {
    Rng rng(derive_seed(options.seed, fmt::format("calibration/{}", run)));
    const TruthDraw truth = draw_truth(rng, n);
    search_alone(bins, n, rng, truth.rule, [&](const Variant& v) { return rng.uniform() < truth.rate_of(v); });
  }
  finish(bins);
  return bins;
}

MethodScore compare_methods(const Kind& kind, const IsolateBenchOptions& options, int runs) {
  MethodScore score{.world = kind.name};
  for (int run = 0; run < runs; ++run) {
    const std::uint64_t seed = derive_seed(options.seed, fmt::format("{}/{}", kind.name, run));
    World w = make_world(kind, options, false, seed);
    const Variant bad = kind.off_side ? reference_variant(w.deployment) : as_deployed(w.deployment);
    const Variant good = kind.off_side ? as_deployed(w.deployment) : reference_variant(w.deployment);
    for (const bool ddmin : {false, true}) {
      LaunchTester tester = [&w, rng = Rng(derive_seed(seed, ddmin ? "ddmin" : "single"))](const Variant& v) mutable {
        bool fails = false;
        for (const SimulatedFault& f : w.simulated.faults)
          fails |= w.simulated.at_fault(f, v) && rng.uniform() < f.launch_rate;
        return fails;
      };
      const OlderResult found = ddmin ? by_ddmin(bad, good, tester) : one_at_a_time(bad, good, tester);
      const bool right = std::set<std::size_t>(found.culprits.begin(), found.culprits.end()) == w.culprits;
      (ddmin ? score.ddmin_launches : score.one_at_a_time_launches) += found.launches / static_cast<double>(runs);
      (ddmin ? score.ddmin_right : score.one_at_a_time_right) += (right ? 1.0 : 0.0) / runs;
    }
  }
  return score;
}

}  // namespace

IsolateBenchResult bench_isolate(const IsolateBenchOptions& options) {
  IsolateBenchResult result{.options = options, .worlds = {}, .requests = {}, .methods = {}, .calibration = {}};
  const int each = std::max(1, options.investigations / static_cast<int>(kinds().size()));
  for (const Kind& kind : kinds()) {
    for (const bool by_request : {false, true}) {
      WorldScore score{.name = kind.name, .modelled = kind.modelled};
      for (int run = 0; run < each; ++run)
        play_one(kind, options, by_request, derive_seed(options.seed, fmt::format("{}/{}", kind.name, run)), score);
      average(score);
      (by_request ? result.requests : result.worlds).push_back(score);
    }
    if (kind.culprits > 0) result.methods.push_back(compare_methods(kind, options, each));
  }
  result.calibration = calibrate(options);
  return result;
}

}  // namespace plumb::investigator
