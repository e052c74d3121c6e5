#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "investigator/bench_isolate.h"
#include "investigator/bench_scores.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

std::string isolate_bench_json(const IsolateBenchResult& result) {
  const auto worlds = [](const std::vector<WorldScore>& scores) {
    Json list = Json::array();
    for (const WorldScore& w : scores)
      list.push_back(
          {{"world", w.name},
           {"modelled", w.modelled},
           {"runs", w.runs},
           {"right", w.right},
           {"undecided", w.undecided},
           {"wrong_confirmed", w.wrong_confirmed},
           {"wrong_stated", w.wrong_stated},
           {"launches", {{"floor", w.floor_launches}, {"search", w.search_launches}, {"confirm", w.confirm_launches}}},
           {"turned", w.turned},
           {"bits", w.bits > 0 ? Json(w.bits) : Json()}});
    return list;
  };
  return Json{{"bench", "isolate"},
              {"investigations", result.options.investigations},
              {"switches", result.options.switches},
              {"seed", result.options.seed},
              {"worlds", worlds(result.worlds)},
              {"requests", worlds(result.requests)},
              {"older_methods", methods_json(result.methods)},
              {"calibration", calibration_json(result.calibration)}}
      .dump(2);
}

std::string isolate_bench_markdown(const IsolateBenchResult& result, const std::string& recorded) {
  std::string out = fmt::format(
      "# Scoreboard of the isolation\n\nWritten by `plumb bench isolate --investigations {} --switches {} --seed {}{} "
      "--scoreboard docs/scoreboard.md`: whole investigations in simulated worlds, ground to confirmation, without a "
      "process. Equal options give equal numbers.\n\n",
      result.options.investigations, result.options.switches, result.options.seed,
      recorded.empty() ? "" : " --recorded " + recorded);
  out +=
      "*Right*: the planted set confirmed and nothing else, `clean`, or `unexplained`, whatever is the truth. "
      "*Undecided*: inconclusive, or the true set suspected. *Missed*: called clean, because no launch as deployed "
      "showed it (the report prints the rate that launches may have; where an off side is broken, only the reference "
      "is "
      "wrong). *Wrong, stated*: any other set with a posterior of 0.95 or more, confirmed or not. *Search* begins with "
      "one more launch of the failing and of the passing variant; the rest are group tests, to be compared with the "
      "*bits*: log2 of 1 / prior of the truth, below which no strategy's launches can be on average. A world that is "
      "not *modelled* has a truth, or rates, that the model's prior does not foresee.\n\n";
  out += world_table(result.worlds, false);
  out +=
      "\n## The same worlds, switches turned by requests\n\nVariants of a search are asked in processes that run "
      "already, "
      "which share a launch's luck; ground and confirmation launch each.\n\n";
  out += world_table(result.requests, true);
  out += "\n## Older methods in the same worlds\n\nOne launch a test, believed; no floor, no confirmation.\n\n";
  out += method_table(result.methods);
  out +=
      "\n## Calibration\n\nSearches whose truth and rates are drawn from the prior; the first time that the leading "
      "rule's posterior lies in a range.\n\n";
  out += calibration_table(result.calibration);
  return out;
}

}  // namespace plumb::investigator
