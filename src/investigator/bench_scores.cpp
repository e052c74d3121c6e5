#include "investigator/bench_scores.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "investigator/posterior.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

constexpr double kStated = 0.95;
constexpr double kOf = 100;  // per cent

std::string share(int count, int runs) { return fmt::format("{:.1f} %", kOf * count / runs); }

void add_bin(std::vector<CalibrationBin>& bins, std::vector<bool>& used, double stated, bool held) {
  for (std::size_t i = 0; i < bins.size(); ++i) {
    if (used[i] || stated < bins[i].low || stated > bins[i].high) continue;
    used[i] = true;  // once a run: later values of the same run are not independent
    ++bins[i].count;
    bins[i].stated += stated;
    bins[i].held += held ? 1 : 0;
    return;
  }
}

}  // namespace

void count_in(WorldScore& score, const Played& played) {
  const Verdict& v = played.verdict;
  std::set<std::pair<std::string, std::string>> named;
  for (const Culprit& c : v.culprits) named.emplace(c.switch_name, c.side);
  const bool true_set = named == played.planted;
  const bool accuses = !v.culprits.empty();
  ++score.runs;
  if (v.verdict == played.right_verdict && true_set)
    ++score.right;
  else if (v.verdict == "clean")
    ++score.missed;
  else if (!accuses || true_set)
    ++score.undecided;
  if (v.verdict == "confirmed" && !true_set) ++score.wrong_confirmed;
  if (accuses && !true_set && (v.posterior.value_or(0) >= kStated || played.culprits == 0)) ++score.wrong_stated;
  score.floor_launches += v.floor_launches;
  score.search_launches += v.search_launches;
  score.confirm_launches += v.confirm_launches;
  score.turned += v.turned;
}

void average(WorldScore& score) {
  for (double* sum :
       {&score.floor_launches, &score.search_launches, &score.confirm_launches, &score.turned, &score.bits})
    *sum /= score.runs;
}

std::vector<CalibrationBin> calibration_bins() { return {{0.5, 0.8}, {0.8, 0.95}, {0.95, 1}}; }

void search_alone(std::vector<CalibrationBin>& bins, std::size_t switches, Rng& rng, const Hypothesis& truth,
                  const std::function<bool(const Variant&)>& fails) {
  constexpr int kMost = 40;
  constexpr double kEnough = 0.99;
  std::vector<std::size_t> suspects(switches);
  for (std::size_t i = 0; i < switches; ++i) suspects[i] = i;
  GroupTest test({.suspects = suspects, .bad = Variant(switches, true), .both_sides = false, .ranks = {}});
  const auto launch = [&](const Variant& v) { test.add({v, fails(v)}); };
  launch(Variant(switches, true));
  launch(Variant(switches, false));
  std::vector<bool> used(bins.size());
  for (int i = 0; i < kMost; ++i) {
    const GroupTest::Belief best = test.best();
    add_bin(bins, used, best.posterior, best.hypothesis == truth);
    if (best.posterior >= kEnough) break;
    const auto next = test.next({.starts = {Variant(switches, true), Variant(switches, false)},
                                 .turn =
                                     [](Variant v, std::size_t s, bool side) {
                                       v[s] = side;
                                       return std::optional<Variant>(std::move(v));
                                     },
                                 .cost = [](const Variant&) { return 1.0; },
                                 .refused = {},
                                 .seed = rng.next()});
    if (!next) break;
    launch(*next);
  }
}

void finish(std::vector<CalibrationBin>& bins) {
  for (CalibrationBin& b : bins)
    if (b.count > 0) {
      b.stated /= b.count;
      b.held /= b.count;
    }
}

std::string world_table(const std::vector<WorldScore>& worlds, bool turned) {
  std::string out = fmt::format(
      "| world | modelled | runs | right | undecided | missed | wrong, confirmed | wrong, stated | launches: floor | "
      "search | {}confirmation | bits |\n|---|---|---|---|---|---|---|---|---|---|---|{}---|\n",
      turned ? "variants in running processes | " : "", turned ? "---|" : "");
  for (const WorldScore& w : worlds)
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {:.1f} | {:.1f} | {}{:.1f} | {} |\n", w.name,
                       w.modelled ? "yes" : "no", w.runs, share(w.right, w.runs), share(w.undecided, w.runs),
                       share(w.missed, w.runs), w.wrong_confirmed, w.wrong_stated, w.floor_launches, w.search_launches,
                       turned ? fmt::format("{:.1f} | ", w.turned) : "", w.confirm_launches,
                       w.bits > 0 ? fmt::format("{:.1f}", w.bits) : "–");
  return out;
}

nlohmann::ordered_json methods_json(const std::vector<MethodScore>& methods) {
  auto list = nlohmann::ordered_json::array();
  for (const MethodScore& m : methods)
    list.push_back({{"world", m.world},
                    {"one_at_a_time", {{"launches", m.one_at_a_time_launches}, {"right", m.one_at_a_time_right}}},
                    {"ddmin", {{"launches", m.ddmin_launches}, {"right", m.ddmin_right}}}});
  return list;
}

nlohmann::ordered_json calibration_json(const std::vector<CalibrationBin>& bins) {
  auto list = nlohmann::ordered_json::array();
  for (const CalibrationBin& b : bins)
    list.push_back({{"low", b.low}, {"high", b.high}, {"count", b.count}, {"stated", b.stated}, {"held", b.held}});
  return list;
}

std::string method_table(const std::vector<MethodScore>& methods) {
  std::string out = "| world | one at a time: launches | right | ddmin: launches | right |\n|---|---|---|---|---|\n";
  for (const MethodScore& m : methods)
    out += fmt::format("| {} | {:.1f} | {:.0f} % | {:.1f} | {:.0f} % |\n", m.world, m.one_at_a_time_launches,
                       kOf * m.one_at_a_time_right, m.ddmin_launches, kOf * m.ddmin_right);
  return out;
}

std::string calibration_table(const std::vector<CalibrationBin>& bins) {
  std::string out =
      "| posterior | searches | stated, mean | it was the truth | 95 % interval |\n|---|---|---|---|---|\n";
  for (const CalibrationBin& b : bins) {
    const Interval i = interval_95(static_cast<int>(std::lround(b.held * b.count)), b.count);
    out += fmt::format("| {:.2f}–{:.2f} | {} | {:.3f} | {:.3f} | {:.3f}–{:.3f} |\n", b.low, b.high, b.count, b.stated,
                       b.held, i.low, i.high);
  }
  return out;
}

}  // namespace plumb::investigator
