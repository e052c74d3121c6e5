#include <algorithm>

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

double probability(const std::vector<LaunchOutcome>& outcomes, const Round& round,
                   const std::vector<std::size_t>& suspects, std::size_t suspect) {
  return posterior(outcomes, round.bad, suspects, {Hypothesis::Class::any_of, {suspect}}).of_hypothesis;
}

}  // namespace

PosteriorTrace posterior_trace(const Case& c, const Round& round) {
  PosteriorTrace trace{.cell = round.cell, .switches = {}, .points = {}};
  const std::vector<std::size_t> suspects = difference(round.bad, round.good);
  if (suspects.empty() || suspects.size() > kMostTraceSuspects) return trace;

  std::vector<LaunchOutcome> outcomes;
  std::vector<std::int64_t> launches;
  for (const LaunchRecord& l : c.outcome.history.launches)
    if (const auto failed = launch_fails(l, round, c.outcome.findings)) {
      outcomes.push_back({l.variant, *failed});
      launches.push_back(l.id);
    }
  std::vector<std::pair<double, std::size_t>> last;
  for (const std::size_t s : suspects) last.emplace_back(probability(outcomes, round, suspects, s), s);
  std::stable_sort(last.begin(), last.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  last.resize(std::min(last.size(), kMostTraced));
  for (const auto& [ignored, s] : last) trace.switches.push_back(c.plan.deployment.switches[s].name);

  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const std::vector<LaunchOutcome> so_far(outcomes.begin(), outcomes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    PosteriorTrace::Point point{.launch = launches[i], .failed = outcomes[i].failed, .probabilities = {}};
    for (const auto& [ignored, s] : last) point.probabilities.push_back(probability(so_far, round, suspects, s));
    trace.points.push_back(std::move(point));
  }
  return trace;
}

}  // namespace plumb::investigator
