#include <algorithm>
#include <numeric>
#include <utility>

#include "investigator/posterior.h"
#include "investigator/report_facts.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

// What a launch says of the round: nothing when it asked fewer trials of the probe than a launch is judged by.
std::optional<bool> launch_fails(const LaunchRecord& launch, const Round& round, const Findings& findings) {
  Counts counts;
  for (const TrialRecord& t : launch.trials)
    if (t.item.cell == round.cell && t.wording == findings.wording && t.grade != Grade::infrastructure)
      counts += {is_failure(t.grade) ? 1 : 0, 1};
  if (counts.trials == 0 || counts.trials < round.trials_per_launch) return std::nullopt;
  return counts.failures >= round.threshold;
}

}  // namespace

PosteriorTrace posterior_trace(const Case& c, const Round& round) {
  PosteriorTrace trace{.cell = round.cell, .switches = {}, .points = {}};
  const std::vector<std::size_t> suspects = difference(round.bad, round.good);
  if (suspects.empty() || suspects.size() > GroupTest::kMostSuspects) return trace;

  GroupTest test({.suspects = suspects, .bad = round.bad});
  for (const LaunchRecord& l : c.outcome.history.launches)
    if (const auto failed = launch_fails(l, round, c.outcome.findings)) {
      test.add({l.variant, *failed, l.process()});
      trace.points.push_back({.launch = l.id, .failed = *failed, .probabilities = test.marginals()});
    }
  if (trace.points.empty()) return trace;

  std::vector<std::size_t> shown(suspects.size());  // those that end highest
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  const std::vector<double> last = trace.points.back().probabilities;
  std::sort(shown.begin(), shown.end(),
            [&](std::size_t x, std::size_t y) { return last[x] != last[y] ? last[x] > last[y] : x < y; });
  shown.resize(std::min(shown.size(), kMostTraced));
  for (const std::size_t i : shown) trace.switches.push_back(c.plan.deployment.switches[suspects[i]].name);
  for (PosteriorTrace::Point& point : trace.points) {
    const std::vector<double> all = std::move(point.probabilities);
    point.probabilities.clear();
    for (const std::size_t i : shown) point.probabilities.push_back(all[i]);
  }
  return trace;
}

}  // namespace plumb::investigator
