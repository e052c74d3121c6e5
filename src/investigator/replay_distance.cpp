#include <algorithm>
#include <tuple>

#include "investigator/investigate.h"
#include "investigator/paired.h"
#include "investigator/replay.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Status = LaunchRecord::Status;

constexpr int kMaxPairs = 10;  // of launches of a flip and of the reference
constexpr int kPairsWhenIdentical = 2;
constexpr double kHopeless = 0.05;

std::string in_short(const DistanceSize& size) {
  return fmt::format("mean D {:.2g}, largest {:.2g}", size.mean, size.largest);
}

}  // namespace

std::vector<std::pair<ScoreItem, Wording>> Replay::texts() const {
  std::vector<std::pair<ScoreItem, Wording>> all;
  for (const ScoreItem& item : score_items(shape_of(plan_.deployment))) {
    const bool refused = std::any_of(measured_.begin(), measured_.end(), [&](const LaunchRecord* l) {
      return std::any_of(l->scores.begin(), l->scores.end(), [&](const ScoreRecord& r) {
        return r.item.path == item.path && r.scores.status == Scores::Status::not_offered;
      });
    });
    if (!refused) all.emplace_back(item, *findings_.wording);
  }
  return all;
}

void Replay::measure(const LaunchRecord& launch) {
  const auto wanted = texts();
  if (wanted.empty() || launch.status == Status::failed || launch.status == Status::infeasible) return;
  scored_.insert(&launch);
  const bool complete = std::all_of(wanted.begin(), wanted.end(), [&](const auto& text) {
    return std::any_of(launch.scores.begin(), launch.scores.end(),
                       [&](const ScoreRecord& r) { return r.item == text.first && r.wording == text.second; });
  });
  if (!complete) {
    if (launch.status == Status::died) return;
    if (launch.status == Status::done || last_wanted_.label != launch.label)
      throw Damaged{fmt::format("launch {}: it lacks scored texts", launch.id)};
    check_budget(launch.label);
    Wanted more = last_wanted_;
    more.texts = wanted;
    throw Pending{more};
  }
  measured_.push_back(&launch);
}

const LaunchRecord* Replay::measured(const Variant& variant) const {
  const auto it =
      std::find_if(measured_.begin(), measured_.end(), [&](const auto* l) { return l->variant == variant; });
  return it == measured_.end() ? nullptr : *it;
}

bool Replay::distance_known() const { return measured(findings_.reference) != nullptr && !distance_floor().empty(); }

std::vector<TextDistance> Replay::texts_of(const LaunchRecord& launch) const {
  const LaunchRecord* reference = measured(findings_.reference);
  return reference == nullptr ? std::vector<TextDistance>{} : distances(reference->scores, launch.scores);
}

std::vector<PromptDistance> Replay::distance_floor() const {
  std::vector<std::vector<PromptDistance>> repeats;
  const LaunchRecord* reference = measured(findings_.reference);
  for (const LaunchRecord* l : measured_)
    if (l != reference && l->variant == findings_.reference) repeats.push_back(distance_of(*l));
  return floor_of(repeats);
}

bool Replay::is_over(const LaunchRecord& launch, double shift) const {
  return over_budget_e_value(distance_of(launch), shift, distance_floor()) >= kShownEValue;
}

bool Replay::scores_identical() { return bit_identical() && size_of(distance_floor()).largest == 0; }

const LaunchRecord* Replay::distance_launch(const std::string& label, const Variant& variant, const std::string& why) {
  constexpr std::size_t kPrompts = 3;
  Items items = repeated_items();
  std::sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    const auto order = [&](const auto& item) {
      return std::make_tuple(cost_of(item.first.cell), item.first.cell, item.first.seed);
    };
    return order(a) < order(b);
  });
  if (items.size() > kPrompts) items.resize(kPrompts);
  const LaunchRecord* launch = want(label, variant, items, why);
  if (launch != nullptr) measure(*launch);
  const bool has = launch != nullptr && !measured_.empty() && measured_.back() == launch;
  if (!has) ask_openly("could not be measured: " + (launch == nullptr ? last_failure_ : label));
  return has ? launch : nullptr;
}

std::vector<Variant> Replay::cures_to_measure(const Round& r) const {
  // Where the reference itself has the bad side, the distance to it tells nothing.
  const std::vector<std::size_t>& set = r.hypothesis.members;
  for (const std::size_t s : set)
    if (findings_.reference[s] == r.bad[s]) return {};
  if (r.hypothesis.kind == Hypothesis::Class::any_of) return {turned_all(r.bad, set, r.good)};
  std::vector<Variant> cures;
  for (const std::size_t s : set) cures.push_back(turned_all(r.bad, {s}, r.good));
  return cures;
}

void Replay::must_approach_reference(int round, const std::vector<Variant>& cures) {
  Round& r = *current_;
  const LaunchRecord* bad = measured(r.bad);
  if (cures.empty() || bad == nullptr || !distance_known()) {
    r.checks.emplace_back("distance to the reference: not measured, so whether the cure comes nearer to it is open");
    return;
  }
  for (std::size_t i = 0; i < cures.size(); ++i) {
    const LaunchRecord* cured = measured(cures[i]);
    if (cured == nullptr || cures[i] == findings_.reference) continue;
    std::string change = fmt::format("distance to the reference: {} cured, {} failing",
                                     in_short(size_of(distance_of(*cured))), in_short(size_of(distance_of(*bad))));
    if (farther_e_value(distance_of(*cured), distance_of(*bad)) < kHintedEValue) {
      r.checks.push_back(change + ": the cure is not farther away");
      continue;
    }
    SignEProcess e;
    bool always = true;
    const int most = scores_identical() ? kPairsWhenIdentical : kMaxPairs;
    while (always && e.pairs() < most && e.value() < kShownEValue) {
      std::optional<double> d[2];  // cured, failing
      const std::size_t first = derive_seed(plan_.seed, fmt::format("{}/distance/{}", round, e.pairs())) % 2;
      for (const std::size_t which : {first, 1 - first})
        if (const LaunchRecord* l = distance_launch(
                fmt::format("confirm/{}/distance-{}/{}/{}", round, i + 1, which == 0 ? "cure" : "harm", e.pairs() + 1),
                which == 0 ? cures[i] : r.bad, "is the cured variant farther from the reference?"))
          d[which] = size_of(distance_of(*l)).mean;
      always = d[0] && d[1] && *d[0] > *d[1];
      if (d[0] && d[1]) e.add(*d[0], *d[1]);
    }
    if (always && (e.value() >= kShownEValue || scores_identical())) {
      r.checks.push_back(change + ": a suspicious cure");
      stop(
          "suspected",
          fmt::format("suspicious cure: the symptom is gone, but log-probabilities are farther from the reference than "
                      "before ({}), so that it is not accepted as one",
                      change),
          klass());
    }
    r.checks.push_back(change + ": farther away there, but not on fresh launches");
  }
}

std::optional<Variant> Replay::flipped(const std::vector<std::size_t>& switches) const {
  Variant v = findings_.reference;
  for (const std::size_t s : switches) v[s] = findings_.deployed[s];
  if (!check_variant(plan_.deployment, v)) return std::nullopt;
  return v;
}

void Replay::sweep(const std::vector<std::size_t>& switches, std::vector<std::size_t>& over, int& number) {
  if (switches.empty()) return;
  const auto variant = flipped(switches);
  const LaunchRecord* launch = nullptr;
  if (variant) launch = measured(*variant);
  if (variant && launch == nullptr)
    launch = distance_launch(fmt::format("search/distance/{}", ++number), *variant,
                             "do switches that should not move log-probabilities?");
  if (launch != nullptr && !is_over(*launch, 0)) return;
  if (switches.size() == 1) {
    if (launch != nullptr)
      over.push_back(switches[0]);
    else
      ask_openly(fmt::format("{}: cannot be turned alone in the reference, so its budget is not checked",
                             plan_.deployment.switches[switches[0]].name));
    return;
  }
  const auto middle = switches.begin() + static_cast<std::ptrdiff_t>(switches.size() / 2);
  const std::size_t before = over.size();
  sweep({switches.begin(), middle}, over, number);
  sweep({middle, switches.end()}, over, number);
  if (launch != nullptr && over.size() == before)
    ask_openly("some switches move log-probabilities together, none of them alone: see the distances");
}

void Replay::judge_differences() {
  if (one_variant() || !distance_known()) return;
  const LaunchRecord* deployed = measured(findings_.deployed);
  if (deployed == nullptr || !is_over(*deployed, 0)) return;
  std::vector<std::size_t> equal;
  std::vector<std::size_t> moving;
  std::size_t unstated = 0;
  for (const std::size_t s : difference(findings_.deployed, findings_.reference)) {
    const double shift = plan_.deployment.switches[s].shift;
    if (shift >= 0) (shift > 0 ? moving : equal).push_back(s);
    unstated += shift < 0 ? 1 : 0;
  }
  std::vector<std::size_t> over;
  int number = 0;
  sweep(equal, over, number);
  const LaunchRecord* group = equal.empty() ? measured(findings_.reference) : nullptr;
  if (const auto variant = flipped(equal); variant && !equal.empty()) group = measured(*variant);
  const bool group_is_reference = group != nullptr && size_of(distance_of(*group)).largest == 0;
  for (const std::size_t s : moving) {
    const double shift = plan_.deployment.switches[s].shift;
    // All others together equal the reference to the bit: the deployment is this switch's flip.
    if (group_is_reference && moving.size() == 1 && unstated == 0 && !is_over(*deployed, shift)) continue;
    const auto variant = flipped({s});
    const LaunchRecord* launch = variant ? measured(*variant) : nullptr;
    if (variant && launch == nullptr)
      launch = distance_launch(fmt::format("search/distance/{}", ++number), *variant,
                               fmt::format("is {} alone within its budget?", plan_.deployment.switches[s].name));
    if (launch != nullptr && is_over(*launch, shift)) over.push_back(s);
    if (!variant)
      ask_openly(fmt::format("{}: cannot be turned alone in the reference, so its budget is not checked",
                             plan_.deployment.switches[s].name));
  }
  for (const std::size_t s : over) confirm_over_budget(s);
  if (!over.empty()) throw Stop{"confirmed", "or"};
}

void Replay::confirm_over_budget(std::size_t index) {
  const SwitchSpec& spec = plan_.deployment.switches[index];
  const Variant flip = *flipped({index});
  OverBudget found{.index = index, .shift = spec.shift};
  found.size = size_of(distance_of(*measured(flip)));
  found.contrast = {fmt::format("{} alone is over its budget", spec.name), flip, findings_.reference, 0, 0, 0, 1};
  Contrast& c = found.contrast;
  PairedEValue e;
  bool done = false;
  while (!done && c.pairs < kMaxPairs && e.value() >= kHopeless) {
    const std::size_t first = derive_seed(plan_.seed, fmt::format("budget/{}/{}", spec.name, c.pairs)) % 2;
    bool over[2] = {false, false};  // reference, flip
    for (const std::size_t which : {first, 1 - first}) {
      const LaunchRecord* l = distance_launch(
          fmt::format("confirm/budget/{}/{}/{}", spec.name, which == 1 ? "flip" : "reference", c.pairs + 1),
          which == 1 ? flip : findings_.reference,
          which == 1 ? fmt::format("{} alone: over its budget?", spec.name) : "reference variant: within the floor?");
      if (l == nullptr) stop("inconclusive", fmt::format("{}: could not be measured again", c.name));
      over[which] = is_over(*l, spec.shift);
    }
    e.add(over[1], over[0]);
    ++c.pairs;
    c.failed += over[1] ? 1 : 0;
    c.wrongly_failed += over[0] ? 1 : 0;
    c.e_value = e.value();
    const bool perfect = c.failed == c.pairs && c.wrongly_failed == 0;
    done = (scores_identical() && c.pairs >= kPairsWhenIdentical && perfect) ||
           (c.e_value >= kShownEValue && 10 * c.wrongly_failed <= c.pairs);
  }
  if (!done)
    stop("inconclusive", fmt::format("{}: in the search, but not confirmed: e-value {:.2g} after {} pairs of launches",
                                     c.name, c.e_value, c.pairs));
  findings_.reasons.push_back(fmt::format(
      "no answer was lost, but {} alone moves log-probabilities further than its declared shift of {:.2g}: {}",
      spec.name, spec.shift, in_short(found.size)));
  findings_.over_budget.push_back(std::move(found));
}

void Replay::describe_distance() {
  DistanceFindings& f = findings_.distance;
  f = {};
  f.measured = distance_known();
  if (!f.measured) {
    f.why_not = "no launch of the reference was asked for log-probabilities twice";
    for (const LaunchRecord* l : measured_)
      for (const ScoreRecord& r : l->scores)
        if (r.scores.status != Scores::Status::measured) f.why_not = "the server says: " + r.scores.message;
    return;
  }
  const std::vector<PromptDistance> floor = distance_floor();
  const LaunchRecord* reference = measured(findings_.reference);
  std::set<Variant> described;
  for (const LaunchRecord* l : measured_) {
    if (l == reference || !described.insert(l->variant).second) continue;
    DistanceRow row{.variant = l->variant, .repeated = l->variant == findings_.reference};
    row.launches = static_cast<int>(std::count_if(measured_.begin(), measured_.end(), [&](const LaunchRecord* other) {
      return other != reference && other->variant == l->variant;
    }));
    const std::vector<TextDistance> texts = texts_of(*l);
    for (const auto& [path, state] :
         {std::pair(ScorePath::scored, CacheState::cold), std::pair(ScorePath::generated, CacheState::cold),
          std::pair(ScorePath::generated, CacheState::hit)}) {
      DistanceRow::View view{path, state, size_of(texts, path, state)};
      for (const TextDistance& t : texts) {
        if (t.item.path != path || t.item.state != state) continue;
        view.hits += t.cached_tokens.value_or(0) > 0 ? 1 : 0;
        view.outside_list += t.outside_list;
      }
      if (view.size.prompts > 0) row.views.push_back(view);
    }
    row.incomparable = static_cast<int>(std::count_if(l->scores.begin(), l->scores.end(), [&](const ScoreRecord& r) {
      return r.scores.status == Scores::Status::measured &&
             std::any_of(reference->scores.begin(), reference->scores.end(),
                         [&](const ScoreRecord& from) {
                           return from.item == r.item && from.scores.status == Scores::Status::measured;
                         }) &&
             std::none_of(texts.begin(), texts.end(), [&](const TextDistance& t) { return t.item == r.item; });
    }));
    const auto turned = difference(l->variant, findings_.reference);
    if (turned.size() == 1 && plan_.deployment.switches[turned[0]].shift >= 0)
      row.budget = plan_.deployment.switches[turned[0]].shift;
    row.e_farther = farther_e_value(distance_of(*l), floor);
    row.e_over = over_budget_e_value(distance_of(*l), row.budget.value_or(0), floor);
    const bool differs =
        row.e_farther >= kShownEValue || over_budget_e_value(distance_of(*l), 0, floor) >= kShownEValue;
    row.word = row.repeated                               ? "floor"
               : row.budget && row.e_over >= kShownEValue ? "over budget"
               : differs                                  ? "difference"
                                                          : "";
    f.rows.push_back(std::move(row));
  }
}

}  // namespace plumb::investigator
