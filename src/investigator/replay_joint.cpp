#include <algorithm>

#include <fmt/ranges.h>

#include "base/rng.h"
#include "investigator/paired.h"
#include "investigator/replay.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

constexpr std::size_t kLeastSuspects = 3;  // two that are both needed are a pair, which the search finds
constexpr std::size_t kLeastSubsets = 8;   // launches of random sets, for the sums and for the dose
constexpr int kMaxPairs = 12;
constexpr int kPairsWhenIdentical = 2;
constexpr int kRepeats = 3;  // of a switch alone, where launches differ: a fault may show in some of them only
constexpr double kHopeless = 0.05;
constexpr double kDoseP = 0.01;
constexpr double kLeastExplained = 0.9;  // of the squares, by the additive model
constexpr double kSingle = 0.5;          // a switch that may have half of the distance is no part of a crowd

}  // namespace

std::optional<Replay::Dose> Replay::dose(int round, const std::string& label, const Variant& variant,
                                         const std::string& why) {
  const Items items =
      replay_items_.empty() ? items_of(fmt::format("joint/{}", round), current_->cell, fresh_items_) : replay_items_;
  const LaunchRecord* launch =
      want(label, variant, items, why, {current_->threshold, items.size(), "it fails", "it passes"});
  if (launch != nullptr) measure(*launch);
  if (launch == nullptr || measured_.back() != launch) return std::nullopt;
  return Dose{variant, count(*launch, items).failures >= current_->threshold, distance_of(*launch)};
}

std::optional<std::vector<Replay::Dose>> Replay::doses(int round, const std::vector<std::size_t>& suspects) {
  const Round& r = *current_;
  std::vector<Dose> all;
  // Each alone: none may harm, and none may be over its budget.
  for (const std::size_t s : suspects) {
    const SwitchSpec& spec = plan_.deployment.switches[s];
    const auto variant = with_side(plan_.deployment, r.good, s, r.bad[s]);
    if (!variant || difference(*variant, r.good).size() != 1) return std::nullopt;
    for (int i = 1; i <= (bit_identical() ? 1 : kRepeats); ++i) {
      const auto d = dose(round, fmt::format("search/{}/joint/{}/{}", round, spec.name, i), *variant,
                          fmt::format("does {} alone harm?", spec.name));
      if (!d || d->failed) return std::nullopt;
      all.push_back(*d);
    }
    if (spec.shift < 0 || over_budget_e_value(all.back().d, spec.shift, distance_floor()) < kShownEValue) continue;
    ask_openly(fmt::format("{} alone moves log-probabilities beyond its budget", spec.name));
    return std::nullopt;
  }
  // Random sets of them, so that sums are seen of which the suspects' own names say nothing.
  Rng rng(derive_seed(plan_.seed, fmt::format("joint/{}", round)));
  const std::size_t subsets = std::max(kLeastSubsets, suspects.size());
  for (std::size_t i = 1; i <= subsets; ++i) {
    const std::size_t size = 2 + rng.below(suspects.size() - 2);
    std::vector<std::size_t> order = suspects;
    for (std::size_t k = 0; k < size; ++k) std::swap(order[k], order[k + rng.below(order.size() - k)]);
    Variant variant = r.good;
    for (std::size_t k = 0; k < size; ++k) variant[order[k]] = r.bad[order[k]];
    if (!check_variant(plan_.deployment, variant)) continue;
    const auto d = dose(round, fmt::format("search/{}/joint-sets/{}", round, i), variant,
                        fmt::format("do {} of the suspects harm?", size));
    if (!d) return std::nullopt;
    all.push_back(*d);
  }
  return all;
}

void Replay::judge_joint(int round) {
  Round& r = *current_;
  const std::vector<std::size_t> suspects = difference(r.bad, r.good);
  if (!distance_known() || r.good != findings_.reference || suspects.size() < kLeastSuspects) return;
  const std::string before = findings_.reasons.back();
  r.hypothesis = {};
  r.posterior = {};
  auto all = doses(round, suspects);
  if (!all) return;
  PairedEValue e;
  int failed = 0;
  int wrongly = 0;
  while (e.value() < kShownEValue && e.pairs() < kMaxPairs && e.value() >= kHopeless) {
    if (bit_identical() && e.pairs() >= kPairsWhenIdentical && failed == e.pairs() && wrongly == 0) break;
    const std::size_t first = derive_seed(plan_.seed, fmt::format("joint/{}/{}", round, e.pairs())) % 2;
    bool outcome[2] = {false, false};  // good, bad
    for (const std::size_t which : {first, 1 - first}) {
      const auto d =
          dose(round, fmt::format("confirm/{}/joint/{}/{}", round, which == 1 ? "harm" : "cure", e.pairs() + 1),
               which == 1 ? r.bad : r.good, which == 1 ? "all of them: should fail" : "none: should pass");
      if (!d) return;
      outcome[which] = d->failed;
      all->push_back(*d);
    }
    e.add(outcome[1], outcome[0]);
    failed += outcome[1] ? 1 : 0;
    wrongly += outcome[0] ? 1 : 0;
  }
  // One launch in ten may be contrary: a sum fails in each launch, a fault that shows in some of them does not.
  const bool perfect = bit_identical() && failed == e.pairs() && wrongly == 0;
  if (!perfect && (e.value() < kShownEValue || 10 * wrongly > e.pairs() || 10 * failed < 9 * e.pairs())) return;

  std::vector<AdditiveSample> samples;
  std::vector<double> d;
  std::vector<bool> failures;
  for (const Dose& one : *all) {
    AdditiveSample sample;
    for (const std::size_t s : suspects) sample.turned.push_back(one.variant[s] != r.good[s]);
    for (const PromptDistance& p : one.d) sample.d.push_back(p.d);
    if (sample.d.empty() || (!samples.empty() && samples[0].d.size() != sample.d.size())) return;
    d.push_back(size_of(one.d).mean);
    failures.push_back(one.failed);
    samples.push_back(std::move(sample));
  }
  Joint joint{.members = suspects, .shares = {}, .model = fit_additive(samples)};
  for (const std::size_t s : suspects) joint.names.push_back(plan_.deployment.switches[s].name);
  const std::vector<bool> everything(suspects.size(), true);
  const std::uint64_t seed = derive_seed(plan_.seed, fmt::format("joint/{}/shares", round));
  joint.shares = shares_of(samples, joint.model, everything, seed);
  joint.dose_p = dose_p_value(d, failures, seed);
  joint.launches = static_cast<int>(samples.size());
  const bool crowd =
      std::all_of(joint.shares.begin(), joint.shares.end(), [](const Share& share) { return share.high < kSingle; });
  joint.concluded = crowd && joint.dose_p <= kDoseP && joint.model.explained >= kLeastExplained;
  r.contrasts.push_back(
      {"all suspects together harm, none of them does not", r.bad, r.good, e.pairs(), failed, wrongly, e.value()});
  findings_.joint = joint;
  if (!joint.concluded) return;
  std::erase(findings_.reasons, before);
  findings_.reasons.push_back(fmt::format(
      "no single culprit: each of {} switches alone passes, their differences add up to D {:.2g} (an additive model "
      "explains {:.0f} %), and launches fail where the sum is large (p {:.2g})",
      suspects.size(), joint.model.predict(everything), 100 * joint.model.explained, joint.dose_p));
  throw Stop{"joint", "other"};
}

}  // namespace plumb::investigator
