#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "investigator/bench_isolate.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kOf = 100;  // per cent

std::string share(int count, int runs) { return fmt::format("{:.1f} %", kOf * count / runs); }

}  // namespace

std::string isolate_bench_json(const IsolateBenchResult& result) {
  Json worlds = Json::array();
  for (const WorldScore& w : result.worlds)
    worlds.push_back(
        {{"world", w.name},
         {"modelled", w.modelled},
         {"runs", w.runs},
         {"right", w.right},
         {"undecided", w.undecided},
         {"wrong_confirmed", w.wrong_confirmed},
         {"wrong_stated", w.wrong_stated},
         {"launches", {{"floor", w.floor_launches}, {"search", w.search_launches}, {"confirm", w.confirm_launches}}},
         {"bits", w.bits > 0 ? Json(w.bits) : Json()}});
  Json methods = Json::array();
  for (const MethodScore& m : result.methods)
    methods.push_back({{"world", m.world},
                       {"one_at_a_time", {{"launches", m.one_at_a_time_launches}, {"right", m.one_at_a_time_right}}},
                       {"ddmin", {{"launches", m.ddmin_launches}, {"right", m.ddmin_right}}}});
  Json calibration = Json::array();
  for (const CalibrationBin& b : result.calibration)
    calibration.push_back(
        {{"low", b.low}, {"high", b.high}, {"count", b.count}, {"stated", b.stated}, {"held", b.held}});
  return Json{{"bench", "isolate"},
              {"investigations", result.options.investigations},
              {"switches", result.options.switches},
              {"seed", result.options.seed},
              {"worlds", worlds},
              {"older_methods", methods},
              {"calibration", calibration}}
      .dump(2);
}

std::string isolate_bench_markdown(const IsolateBenchResult& result) {
  std::string out = fmt::format(
      "# Scoreboard of the isolation\n\nWritten by `plumb bench isolate --investigations {} --switches {} --seed {} "
      "--scoreboard docs/scoreboard.md`: whole investigations in simulated worlds, ground to confirmation, without a "
      "process. Equal options give equal numbers.\n\n",
      result.options.investigations, result.options.switches, result.options.seed);
  out +=
      "*Right*: the planted set confirmed and nothing else, `clean`, or `unexplained`, whatever is the truth. "
      "*Undecided*: inconclusive, or the true set suspected. *Missed*: called clean, because no launch as deployed "
      "showed it (the report prints the rate that launches may have; where an off side is broken, only the reference "
      "is "
      "wrong). *Wrong, stated*: any other set with a posterior of 0.95 or more, confirmed or not. *Search* begins with "
      "one more launch of the failing and of the passing variant; the rest are group tests, to be compared with the "
      "*bits*: log2 of 1 / prior of the truth, below which no strategy's launches can be on average. A world that is "
      "not *modelled* has a truth, or rates, that the model's prior does not foresee.\n\n"
      "| world | modelled | runs | right | undecided | missed | wrong, confirmed | wrong, stated | launches: floor | "
      "search | confirmation | bits |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const WorldScore& w : result.worlds)
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {} |\n", w.name,
                       w.modelled ? "yes" : "no", w.runs, share(w.right, w.runs), share(w.undecided, w.runs),
                       share(w.missed, w.runs), w.wrong_confirmed, w.wrong_stated, w.floor_launches, w.search_launches,
                       w.confirm_launches, w.bits > 0 ? fmt::format("{:.1f}", w.bits) : "–");
  out +=
      "\n## Older methods in the same worlds\n\nOne launch a test, believed; no floor, no confirmation.\n\n"
      "| world | one at a time: launches | right | ddmin: launches | right |\n|---|---|---|---|---|\n";
  for (const MethodScore& m : result.methods)
    out += fmt::format("| {} | {:.1f} | {:.0f} % | {:.1f} | {:.0f} % |\n", m.world, m.one_at_a_time_launches,
                       kOf * m.one_at_a_time_right, m.ddmin_launches, kOf * m.ddmin_right);
  out +=
      "\n## Calibration\n\nSearches whose truth and rates are drawn from the prior; the first time that the leading "
      "rule's posterior lies in a range.\n\n| posterior | searches | stated, mean | it was the truth | 95 % interval "
      "|\n|---|---|---|---|---|\n";
  for (const CalibrationBin& b : result.calibration) {
    const Interval i = interval_95(static_cast<int>(std::lround(b.held * b.count)), b.count);
    out += fmt::format("| {:.2f}–{:.2f} | {} | {:.3f} | {:.3f} | {:.3f}–{:.3f} |\n", b.low, b.high, b.count, b.stated,
                       b.held, i.low, i.high);
  }
  return out;
}

}  // namespace plumb::investigator
