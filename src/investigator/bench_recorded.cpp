#include "investigator/bench_recorded.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "base/rng.h"
#include "investigator/bench_scores.h"
#include "investigator/design.h"
#include "investigator/older_methods.h"
#include "investigator/simulated_worlds.h"
#include "investigator/statistics.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

using Class = Hypothesis::Class;
using simulation::SimulatedWorld;

// All launches of one plant.
struct Plant {
  RecordedPlant name;
  std::vector<const RecordedLaunch*> launches;
  bool breaks = false;  // loses answers on its bad side for sure
  bool silent = false;  // fails nothing on it that its good side answers
};

bool bad_host_on(const RecordedPlant& plant) { return plant.side != "off"; }

// The marks of a cell in a setting; of another launch of the plant where this one did not ask.
const std::string& marks_of(const Plant& plant, const RecordedLaunch& launch, const std::string& cell,
                            RecordedSetting setting) {
  if (plant.name.host.empty()) setting.host_on = true;
  const std::string& own = launch.marks.at(cell)[setting.index()];
  if (!own.empty()) return own;
  for (const RecordedLaunch* other : plant.launches)
    if (const std::string& marks = other->marks.at(cell)[setting.index()]; !marks.empty()) return marks;
  return own;
}

Counts counts_of(const Plant& plant, const std::string& cell, bool bad, bool others_deployed) {
  Counts c;
  for (const RecordedLaunch* l : plant.launches)
    for (const char m : marks_of(plant, *l, cell, {bad == bad_host_on(plant.name), others_deployed}))
      if (m != '?') c += {m == 'x' ? 1 : 0, 1};
  return c;
}

struct Plants {
  const Recording* recording = nullptr;
  Plant nothing;
  std::vector<Plant> breaking;
  std::vector<Plant> silent;
  std::vector<Plant> steps;  // under no switch, breaking
  int recorded = 0;
};

void judge(Plant& plant, const Plant& nothing, const std::vector<std::string>& cells) {
  constexpr double kSure = 0.001;
  plant.silent = true;
  for (const std::string& cell : cells) {
    const Counts bad = counts_of(plant, cell, true, true);
    const Counts good =
        plant.name.host.empty() ? counts_of(nothing, cell, true, true) : counts_of(plant, cell, false, true);
    plant.breaks |= fisher_more(bad.failures, bad.trials, good.failures, good.trials) <= kSure;
    const Counts alone = counts_of(plant, cell, true, false);
    plant.silent &= bad.failures == 0 && alone.failures == 0;
  }
}

Result<Plants> plants_of(const Recording& recording) {
  std::vector<Plant> all;
  for (const RecordedLaunch& l : recording.rows) {
    auto at = std::find_if(all.begin(), all.end(), [&](const Plant& p) { return p.name == l.plant; });
    if (at == all.end()) at = all.insert(all.end(), Plant{l.plant, {}});
    at->launches.push_back(&l);
  }
  Plants plants;
  plants.recording = &recording;
  for (const Plant& p : all)
    if (p.name.kind == "none") plants.nothing = p;
  if (plants.nothing.launches.empty()) return error("the recording has no launch in which nothing is planted");
  for (Plant& p : all) {
    if (p.name.kind == "none") continue;
    ++plants.recorded;
    judge(p, plants.nothing, recording.cells);
    if (p.breaks) (p.name.side == "step" ? plants.steps : plants.breaking).push_back(p);
    if (p.silent && p.name.side == "on") plants.silent.push_back(p);
  }
  if (plants.breaking.size() < 2) return error("the recording has fewer than two plants that break answers");
  return plants;
}

// A plant in a simulated deployment. Its own launches are drawn for each process.
struct Planted {
  const Plant* plant;
  std::size_t host = 0;
  bool bad_on = true;                 // the side of `host` that the deployment calls bad
  std::optional<std::size_t> gate{};  // shows only with this switch on, too
};

bool trial_fails(const Planted& p, const Recording& recording, const Variant& v, std::uint64_t process_seed,
                 const ItemId& item) {
  if (std::find(recording.cells.begin(), recording.cells.end(), item.cell) == recording.cells.end()) return false;
  const RecordedPlant& name = p.plant->name;
  bool bad = !name.host.empty() && v[p.host] == p.bad_on;
  if (p.gate) bad &= static_cast<bool>(v[*p.gate]);
  bool others = false;
  for (std::size_t s = 0; s < v.size(); ++s) others |= s != p.host && v[s];
  Rng draw(process_seed);
  const auto& launches = p.plant->launches;
  const RecordedLaunch& launch = *launches[draw.below(launches.size())];
  const std::string& marks = marks_of(*p.plant, launch, item.cell, {bad == bad_host_on(name), others});
  return !marks.empty() && marks[Rng(item.seed).below(marks.size())] == 'x';
}

struct Kind {
  std::string name;
  std::string verdict;
  int culprits = 0;
  bool off_side = false;
  bool gated = false;
  enum class From { breaking, silent, steps, nothing } from = From::breaking;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds{
      {"one plant", "confirmed", 1},
      {"two plants, each enough", "confirmed", 2},
      {"one plant, only with another switch", "confirmed", 2, false, true},
      {"one plant on the off side", "confirmed", 1, true},
      {"a step under no switch", "unexplained", 0, false, false, Kind::From::steps},
      {"plants that break no answer", "clean", 0, false, false, Kind::From::silent},
      {"nothing planted", "clean", 0, false, false, Kind::From::nothing},
  };
  return kKinds;
}

struct World {
  Deployment deployment;
  std::vector<Planted> planted;
  std::set<std::size_t> culprits;
  bool bad_on = true;
  SimulatedWorld simulated;
};

std::uint64_t process_seed(std::uint64_t seed, std::int64_t process, std::size_t plant) {
  return derive_seed(seed, fmt::format("recorded launch {} of {}", process, plant));
}

World make_world(const Plants& plants, const Kind& kind, int switches, std::uint64_t seed) {
  World w;
  w.deployment = simulation::switches_all_on(switches);
  w.bad_on = !kind.off_side;
  Rng rng(derive_seed(seed, "world"));
  const auto draw = [&](const std::vector<Plant>& from) { return &from[rng.below(from.size())]; };
  const auto place = [&](const Plant* plant, bool culprit) {
    std::size_t host = 0;
    do host = rng.below(static_cast<std::uint64_t>(switches));
    while (std::any_of(w.planted.begin(), w.planted.end(), [&](const Planted& p) { return p.host == host; }));
    w.planted.push_back({plant, host, w.bad_on});
    if (culprit) w.culprits.insert(host);
  };
  if (kind.from == Kind::From::steps) place(draw(plants.steps), false);
  for (int i = 0; kind.from == Kind::From::breaking && i < (kind.gated ? 1 : kind.culprits); ++i)
    place(draw(plants.breaking), true);
  if (kind.gated) {
    std::size_t gate = 0;
    do gate = rng.below(static_cast<std::uint64_t>(switches));
    while (w.culprits.contains(gate));
    w.planted.front().gate = gate;
    w.culprits.insert(gate);
  }
  // Decoys: wrong on sides that lose no answer.
  constexpr int kDecoys = 3;
  for (int i = 0; kind.from != Kind::From::nothing && !plants.silent.empty() && i < kDecoys; ++i)
    if (w.planted.size() + 2 < static_cast<std::size_t>(switches)) place(draw(plants.silent), false);
  w.simulated.seed = seed;
  return w;
}

// The honest launches fail what the model does not recall, whatever is planted.
bool world_fails(const Plants& plants, const World& w, const Variant& v, std::uint64_t seed, std::int64_t process,
                 const ItemId& item) {
  bool failed = false;
  for (std::size_t i = 0; i < w.planted.size(); ++i)
    failed |= trial_fails(w.planted[i], *plants.recording, v, process_seed(seed, process, i), item);
  if (!w.planted.empty()) return failed;
  const Planted honest{&plants.nothing};
  return trial_fails(honest, *plants.recording, v, process_seed(seed, process, 0), item);
}

Played play(const Plants& plants, const Kind& kind, const RecordedBenchOptions& options, bool by_request,
            std::uint64_t seed) {
  World w = make_world(plants, kind, options.switches, seed);
  if (by_request) w.deployment = simulation::turned_by_requests(std::move(w.deployment));
  w.simulated.by_request = by_request;
  w.simulated.fails = [&](const LaunchRecord& l, const ItemId& item) {
    return world_fails(plants, w, l.variant, seed, l.process(), item);
  };
  const auto played = simulation::play(simulation::plan_of(w.deployment, seed), w.simulated, {}, false);
  Played p{played.findings.verdict, kind.verdict, {}, kind.culprits};
  for (const std::size_t s : w.culprits) p.planted.emplace(w.deployment.switches[s].name, w.bad_on ? "on" : "off");
  return p;
}

WorldScore score_of(const Plants& plants, const Kind& kind, const RecordedBenchOptions& options, bool by_request,
                    int runs) {
  WorldScore score{.name = kind.name, .sound = kind.verdict == "clean"};
  for (int run = 0; run < runs; ++run) {
    const std::uint64_t seed = derive_seed(options.seed, fmt::format("recorded/{}/{}", kind.name, run));
    count_in(score, play(plants, kind, options, by_request, seed));
  }
  average(score);
  return score;
}

// How a launch is judged in a search of a world: the cell that launches of each plant fail most, and the design for it.
struct Judge {
  std::string cell;
  Design design;
};

std::optional<Judge> judge_of(const Plants& plants, const std::vector<Planted>& planted) {
  std::optional<Judge> best;
  double most = 0;
  for (const std::string& cell : plants.recording->cells) {
    // Where any of several is enough, the launches of each must be told from good ones.
    Counts least{0, 0};
    double rate = 1;
    for (const Planted& p : planted) {
      const Counts c = counts_of(*p.plant, cell, true, true);
      const double here = c.trials == 0 ? 0 : c.failures / static_cast<double>(c.trials);
      if (here > rate) continue;
      rate = here;
      least = c;
    }
    const auto design = choose_design(least, counts_of(plants.nothing, cell, true, true));
    if (!design || rate <= most) continue;
    most = rate;
    best = Judge{cell, *design};
  }
  return best;
}

bool launch_fails(const Plants& plants, const World& w, const Judge& judge, const Variant& v, std::uint64_t seed,
                  int launch) {
  int failures = 0;
  for (int i = 0; i < judge.design.trials; ++i) {
    const ItemId item{judge.cell, derive_seed(seed, fmt::format("question/{}/{}", launch, i))};
    failures += world_fails(plants, w, v, seed, launch, item) ? 1 : 0;
  }
  return failures >= judge.design.threshold;
}

MethodScore methods_of(const Plants& plants, const Kind& kind, const RecordedBenchOptions& options, int runs) {
  MethodScore score{.world = kind.name};
  for (int run = 0; run < runs; ++run) {
    const std::uint64_t seed = derive_seed(options.seed, fmt::format("recorded/{}/{}", kind.name, run));
    const World w = make_world(plants, kind, options.switches, seed);
    const std::vector<Planted> culprits(w.planted.begin(), w.planted.begin() + (kind.gated ? 1 : kind.culprits));
    const auto judge = judge_of(plants, culprits);
    if (!judge) continue;
    const Variant on(static_cast<std::size_t>(options.switches), true);
    const Variant off(on.size(), false);
    for (const bool ddmin : {false, true}) {
      LaunchTester tester = [&, launch = 0](const Variant& v) mutable {
        return launch_fails(plants, w, *judge, v, derive_seed(seed, ddmin ? "ddmin" : "single"), ++launch);
      };
      const Variant& bad = w.bad_on ? on : off;
      const Variant& good = w.bad_on ? off : on;
      const OlderResult found = ddmin ? by_ddmin(bad, good, tester) : one_at_a_time(bad, good, tester);
      const bool right = std::set<std::size_t>(found.culprits.begin(), found.culprits.end()) == w.culprits;
      (ddmin ? score.ddmin_launches : score.one_at_a_time_launches) += found.launches / static_cast<double>(runs);
      (ddmin ? score.ddmin_right : score.one_at_a_time_right) += (right ? 1.0 : 0.0) / runs;
    }
  }
  return score;
}

// A truth of the prior's classes, carried by recorded plants instead of drawn rates (`other` has rates: no plant is
// like it).
struct RecordedTruth {
  TruthDraw drawn;
  World world;
  Judge judge;
};

std::optional<RecordedTruth> draw_recorded_truth(const Plants& plants, int switches, Rng& rng, std::uint64_t seed) {
  RecordedTruth t;
  t.drawn = draw_truth(rng, static_cast<std::size_t>(switches));
  const Hypothesis& rule = t.drawn.rule;
  t.world = make_world(plants, {"nothing planted", "clean", 0, false, false, Kind::From::nothing}, switches, seed);
  std::vector<Planted> planted;
  const auto draw = [&] { return &plants.breaking[rng.below(plants.breaking.size())]; };
  if (rule.members.empty()) planted.push_back({draw()});
  for (const std::size_t s : rule.members) {
    planted.push_back({draw(), s, true});
    if (rule.kind == Class::all_of) break;
  }
  const auto judge = judge_of(plants, planted);
  if (!judge) return std::nullopt;
  t.judge = *judge;
  if (rule.kind != Class::none) t.world.planted = std::move(planted);
  return t;
}

// The variant that the recorded plant sees: base has it whatever the switches, `and` when all members are on.
Variant as_seen(const RecordedTruth& t, Variant v) {
  const auto on = [&](std::size_t s) { return static_cast<bool>(v[s]); };
  const auto& members = t.drawn.rule.members;
  if (t.drawn.rule.kind == Class::base) v[0] = true;
  if (t.drawn.rule.kind == Class::all_of) v[members.front()] = std::all_of(members.begin(), members.end(), on);
  return v;
}

std::vector<CalibrationBin> calibrate(const Plants& plants, const RecordedBenchOptions& options) {
  std::vector<CalibrationBin> bins = calibration_bins();
  for (int run = 0; run < options.investigations; ++run) {
    const std::uint64_t seed = derive_seed(options.seed, fmt::format("recorded calibration/{}", run));
    Rng rng(seed);
    const auto truth = draw_recorded_truth(plants, options.switches, rng, seed);
    if (!truth) continue;
    int launch = 0;
    search_alone(bins, static_cast<std::size_t>(options.switches), rng, truth->drawn.rule, [&](const Variant& v) {
      if (truth->drawn.rule.kind == Class::other) return rng.uniform() < truth->drawn.rate_of(v);
      return launch_fails(plants, truth->world, truth->judge, as_seen(*truth, v), seed, ++launch);
    });
  }
  finish(bins);
  return bins;
}

}  // namespace

Result<RecordedBenchResult> bench_recorded(const Recording& recording, const RecordedBenchOptions& options) {
  const auto plants = plants_of(recording);
  if (!plants) return tl::unexpected(plants.error());
  RecordedBenchResult result{.options = options};
  result.plants = plants->recorded;
  result.breaking = static_cast<int>(plants->breaking.size() + plants->steps.size());
  result.launches = static_cast<int>(recording.rows.size());
  result.model_hash = recording.model_hash;
  const int each = std::max(1, options.investigations / static_cast<int>(kinds().size()));
  for (const Kind& kind : kinds()) {
    if (kind.from == Kind::From::steps && plants->steps.empty()) continue;
    if (kind.from == Kind::From::silent && plants->silent.empty()) continue;
    result.restarts.push_back(score_of(*plants, kind, options, false, each));
    result.requests.push_back(score_of(*plants, kind, options, true, each));
    if (kind.culprits > 0) result.methods.push_back(methods_of(*plants, kind, options, each));
  }
  result.calibration = calibrate(*plants, options);
  return result;
}

}  // namespace plumb::investigator
