#include <algorithm>

#include "investigator/replay.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Status = LaunchRecord::Status;

constexpr int kWordingTrials = 10;
constexpr int kWordingMisses = 1;  // rate >= 0.9

}  // namespace

const LaunchRecord& Replay::need(const std::string& label, const Variant& variant, const Items& items,
                                 const std::string& why) {
  const LaunchRecord* launch = want(label, variant, items, why);
  if (launch == nullptr) stop_unmeasured();
  return *launch;
}

bool Replay::nothing_launched() const {
  return std::all_of(seen_.begin(), seen_.end(), [](const Seen& seen) {
    return seen.launch->status == Status::failed || seen.launch->status == Status::infeasible;
  });
}

void Replay::choose_wording() {
  // The label of a reference that was found says so: the first one's launch has ended.
  const std::string first_label = starts_.empty() ? "ground/reference/1" : "ground/reference/found";
  std::vector<std::pair<std::string, Variant>> places{{first_label, findings_.reference}};
  if (!one_variant()) places.push_back({"ground/deployed/1", findings_.deployed});
  for (const auto& [label, variant] : places) {
    for (const Wording wording : {Wording::v4, Wording::plain}) {
      Items items;
      for (int i = 0; i < kWordingTrials; ++i)
        items.push_back({{"short", derive_seed(plan_.seed, fmt::format("wording/{}", i))}, wording});
      const LaunchRecord* launch =
          want(label, variant, items, fmt::format("which wording is understood: {}?", wording_name(wording)));
      if (launch == nullptr) {
        // Whether anything launches at all is worth one more launch: then the deployment itself is not what is wrong.
        const bool first = variant == findings_.reference && !one_variant() && nothing_launched();
        if (first && seen_.back().launch->status == Status::infeasible) {
          find_reference();
          return choose_wording();
        }
        if (first)
          want_once("ground/deployed/1", findings_.deployed, {}, "the reference did not launch: does it as deployed?");
        stop_unmeasured();
      }
      const Counts c = count(*launch, items);
      if (c.trials >= kWordingTrials - kWordingMisses && c.failures <= kWordingMisses) {
        findings_.wording = wording;
        // Only the launch in which the wording was found is still open.
        reference_label_ = variant == findings_.reference ? label : "ground/reference/main";
        return;
      }
    }
  }
  for (const std::string& cell : plan_.cells)
    not_covered_.push_back(cell == "short" ? "short: partly, it was asked only until no wording was understood" : cell);
  stop("inconclusive",
       "no wording of the short probe is answered right by 9 in 10, neither by the reference variant nor "
       "as deployed: the other probes would measure nothing");
}

void Replay::ground() {
  Items first = whole_set("ground/1");
  for (const std::string& cell : plan_.cells)
    if (is_weak(cell))
      for (auto& item : items_of("ground/1", cell, 1)) first.push_back(item);
  const bool deployed_first = reference_label_ == "ground/reference/main";
  if (deployed_first) measure(need("ground/deployed/1", findings_.deployed, first, "as deployed, first launch"));
  measure(need(reference_label_, findings_.reference, first, "reference variant, first launch"));
  if (!deployed_first && !one_variant())
    measure(need("ground/deployed/1", findings_.deployed, first, "as deployed, first launch"));

  Items second = repeated_items();
  const std::vector<std::string> loud = loud_cells();
  for (auto& item : whole_set("ground/2"))
    if (loud.empty() || std::find(loud.begin(), loud.end(), item.first.cell) != loud.end())
      second.push_back(std::move(item));
  if (!one_variant()) need("ground/deployed/2", findings_.deployed, second, "as deployed, new prompts");
  measure(need("ground/reference/2", findings_.reference, second, "reference variant, the same new prompts"));
}

std::vector<std::string> Replay::loud_cells() const {
  constexpr std::size_t kCells = 2;
  constexpr double kLoud = 0.05;
  std::vector<std::string> loud;
  for (const std::string& cell : plan_.cells) {
    if (is_weak(cell)) continue;
    const Counts d = pooled(findings_.deployed, cell);
    const Counts r = pooled(findings_.reference, cell);
    if (fisher_more(d.failures, d.trials, r.failures, r.trials) <= kLoud ||
        fisher_more(r.failures, r.trials, d.failures, d.trials) <= kLoud)
      loud.push_back(cell);
  }
  std::sort(loud.begin(), loud.end(), [&](const auto& a, const auto& b) { return cost_of(a) < cost_of(b); });
  if (loud.size() > kCells) loud.resize(kCells);
  return loud;
}

double Replay::cost_of(const std::string& cell) const {
  double tokens = 0;
  int trials = 0;
  for (const Seen& seen : seen_)
    for (const TrialRecord& t : seen.launch->trials)
      if (t.item.cell == cell && seen.launch->label.starts_with("ground/")) {
        tokens += static_cast<double>(t.tokens());
        ++trials;
      }
  return trials == 0 ? 0 : tokens / trials;
}

void Replay::measure_floor() {
  if (floor_after_ == seen_.size()) return;
  floor_after_ = seen_.size();
  Floor floor;
  std::set<const LaunchRecord*> sharing;
  std::map<std::tuple<Variant, std::string, std::uint64_t, int>, std::pair<const LaunchRecord*, const TrialRecord*>>
      first;
  for (const Seen& seen : seen_)
    for (const auto& item : seen.items) {
      const TrialRecord* t = trial_of(*seen.launch, item);
      // What shares its processes is no launch that another could differ from.
      if (t == nullptr || t->grade == Grade::infrastructure || seen.launch->host != 0) continue;
      const auto key =
          std::make_tuple(seen.launch->variant, item.first.cell, item.first.seed, static_cast<int>(item.second));
      const auto [it, fresh] = first.emplace(key, std::make_pair(seen.launch, t));
      if (fresh || it->second.first == seen.launch) continue;
      sharing.insert(seen.launch);
      sharing.insert(it->second.first);
      for (std::size_t i = 0; i < t->steps.size(); ++i) {
        if (i >= it->second.second->steps.size()) break;
        ++floor.compared_replies;
        if (t->steps[i].text != it->second.second->steps[i].text) ++floor.different_replies;
      }
    }
  floor.launches = static_cast<int>(sharing.size());
  findings_.floor = floor;
}

bool Replay::bit_identical() {
  measure_floor();
  return findings_.floor.identical();
}

}  // namespace plumb::investigator
