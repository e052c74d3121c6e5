#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plumb::investigator {

/// `plumb bench isolate`: whole investigations in simulated worlds, without a process, and two older methods beside
/// them in the same worlds.
struct IsolateBenchOptions {
  int investigations = 2000;  // over all kinds of worlds together
  int switches = 16;
  std::uint64_t seed = 1;
};

/// What came of the investigations of one kind of world.
struct WorldScore {
  std::string name;
  bool modelled = true;  // a rule of the model is its truth
  bool sound = false;    // nothing that a probe could see is planted
  int runs = 0;
  int right = 0;            // the truth and nothing else: the planted set confirmed, clean, unexplained
  int undecided = 0;        // inconclusive, unexplained where a switch is guilty, or suspected the truth
  int missed = 0;           // clean, although something is planted: no launch as deployed showed it
  int wrong_confirmed = 0;  // confirmed, but not the truth
  int wrong_stated = 0;     // any other set stated with a posterior of 0.95 or more, or a sound deployment accused
  double floor_launches = 0;
  double search_launches = 0;  // mean
  double confirm_launches = 0;
  double turned = 0;  // variants asked in running processes
  double bits = 0;    // log2 of 1 / prior of the truth: no strategy needs fewer launches on average; 0: no such rule
};

/// An older method on the same worlds: one launch a test, believed.
struct MethodScore {
  std::string world;
  double one_at_a_time_launches = 0;
  double one_at_a_time_right = 0;  // share
  double ddmin_launches = 0;
  double ddmin_right = 0;
};

/// How often the leading rule was the truth, where its posterior lay in a range during the search.
struct CalibrationBin {
  double low = 0;
  double high = 1;
  int count = 0;
  double stated = 0;  // mean
  double held = 0;    // share
};

struct IsolateBenchResult {
  IsolateBenchOptions options;
  std::vector<WorldScore> worlds;    // a launch a variant
  std::vector<WorldScore> requests;  // the same worlds, switches turned by requests
  std::vector<MethodScore> methods;
  std::vector<CalibrationBin> calibration;
};

/// Equal options give equal results.
IsolateBenchResult bench_isolate(const IsolateBenchOptions& options);

/// One JSON document, and docs/scoreboard.md; `recorded`: the file that a further section was drawn from.
std::string isolate_bench_json(const IsolateBenchResult& result);
std::string isolate_bench_markdown(const IsolateBenchResult& result, const std::string& recorded = {});

}  // namespace plumb::investigator
