#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "investigator/bench_recorded.h"
#include "investigator/bench_scores.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

struct Totals {
  int runs = 0;
  int wrong = 0;
  int clean_runs = 0;
  int accused = 0;
};

Totals totals_of(const std::vector<WorldScore>& worlds) {
  Totals t;
  for (const WorldScore& w : worlds) {
    t.runs += w.runs;
    t.wrong += w.wrong_stated;
    if (!w.sound) continue;
    t.clean_runs += w.runs;
    t.accused += w.wrong_stated;
  }
  return t;
}

std::string goal_line(const char* name, const std::vector<WorldScore>& worlds) {
  constexpr double kOf = 100;
  const Totals t = totals_of(worlds);
  return fmt::format("| {} | {} of {} ({:.2f} %, at most {:.2f} % at 95 %) | {} of {} ({:.2f} %, at most {:.2f} %) |\n",
                     name, t.wrong, t.runs, kOf * t.wrong / t.runs, kOf * upper_limit(t.wrong, t.runs, 0.95), t.accused,
                     t.clean_runs, kOf * t.accused / t.clean_runs, kOf * upper_limit(t.accused, t.clean_runs, 0.95));
}

Json world_json(const WorldScore& w) {
  return {{"world", w.name},
          {"runs", w.runs},
          {"right", w.right},
          {"undecided", w.undecided},
          {"missed", w.missed},
          {"wrong_confirmed", w.wrong_confirmed},
          {"wrong_stated", w.wrong_stated},
          {"launches", {{"floor", w.floor_launches}, {"search", w.search_launches}, {"confirm", w.confirm_launches}}},
          {"turned", w.turned}};
}

}  // namespace

std::string recorded_bench_json(const RecordedBenchResult& result) {
  const auto worlds = [](const std::vector<WorldScore>& scores) {
    Json list = Json::array();
    for (const WorldScore& w : scores) list.push_back(world_json(w));
    return list;
  };
  return Json{{"bench", "isolate --recorded"},
              {"model_hash", result.model_hash},
              {"plants", result.plants},
              {"breaking", result.breaking},
              {"recorded_launches", result.launches},
              {"investigations", result.options.investigations},
              {"switches", result.options.switches},
              {"seed", result.options.seed},
              {"restarts", worlds(result.restarts)},
              {"requests", worlds(result.requests)},
              {"older_methods", methods_json(result.methods)},
              {"calibration", calibration_json(result.calibration)}}
      .dump(2);
}

std::string recorded_bench_markdown(const RecordedBenchResult& result, const std::string& file) {
  const RecordedBenchOptions& o = result.options;
  std::string out = fmt::format(
      "## On recorded trials\n\n{} investigations of {} switches, seed {}, whose trials are those of the shipped "
      "engine, "
      "asked over HTTP by `plumb bench isolate --record {}`: {} plants, {} of which lose answers for sure, {} "
      "launches. A "
      "launch of an investigation is a recorded one, drawn anew with replacement, and its trials stay together; a "
      "prompt "
      "is the same question in every variant. Beside a plant stand three decoys (wrong sides that lose no answer) and "
      "honest switches. Each plant was asked with all other switches as deployed and with all of them off; a variant "
      "between these has the answers of the former.\n\n",
      o.investigations, o.switches, o.seed, file, result.plants, result.breaking, result.launches);
  out +=
      "| switches turned by | wrong at 0.95 or more (goal: 1 %) | sound deployments accused (goal: 0.5 %) |\n"
      "|---|---|---|\n";
  out += goal_line("launches", result.restarts) + goal_line("requests", result.requests);
  out += "\n### A launch a variant\n\n" + world_table(result.restarts, false);
  out += "\n### The same worlds, switches turned by requests\n\n" + world_table(result.requests, true);
  out +=
      "\n### Older methods on the same trials\n\nOne launch a test, believed, judged by the probe that tells the "
      "plants "
      "best; no floor, no confirmation.\n\n" +
      method_table(result.methods);
  out +=
      "\n### Calibration on recorded trials\n\nSearches whose rule is drawn from the prior and carried by a recorded "
      "plant; the first time that the leading rule's posterior lies in a range.\n\n" +
      calibration_table(result.calibration);
  return out;
}

}  // namespace plumb::investigator
