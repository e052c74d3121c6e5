#include <algorithm>

#include <fmt/ranges.h>

#include "investigator/replay.h"

namespace plumb::investigator {
namespace {

using Status = LaunchRecord::Status;
using Switches = std::vector<std::size_t>;

constexpr std::size_t kMostConflict = 3;  // sides that together do not launch; larger sets are not learnt

Switches both(Switches a, const Switches& b, std::size_t of_b) {
  a.insert(a.end(), b.begin(), b.begin() + static_cast<std::ptrdiff_t>(of_b));
  return a;
}

}  // namespace

Variant Replay::with_off_sides(const Switches& off) const {
  const Variant all_off = reference_variant(plan_.deployment);
  Variant variant = findings_.deployed;
  for (const std::size_t s : off) {
    const auto turned = with_side(plan_.deployment, variant, s, all_off[s]);
    // What it would turn along must not be what is kept because it does not launch otherwise.
    const auto moves_kept = [&](const Variant& v) {
      return std::any_of(kept_.begin(), kept_.end(), [&](std::size_t k) { return v[k] != findings_.deployed[k]; });
    };
    if (turned && !moves_kept(*turned)) variant = *turned;
  }
  return variant;
}

bool Replay::starts_with_off_sides(const Switches& off) {
  const Variant variant = with_off_sides(off);
  if (const auto known = starts_.find(variant); known != starts_.end()) return known->second;
  const LaunchRecord* launch = want(fmt::format("start/{}", starts_.size()), variant, {},
                                    "the reference does not launch: which off sides do, all others as deployed?");
  const bool infeasible = launch == nullptr && seen_.back().launch->status == Status::infeasible;
  if (launch == nullptr && !infeasible) stop_unmeasured();
  starts_[variant] = !infeasible;
  return !infeasible;
}

std::size_t Replay::first_that_fails(const Switches& fixed, const Switches& order, std::size_t starts) {
  std::size_t fails = order.size();
  while (fails - starts > 1) {
    const std::size_t middle = starts + (fails - starts) / 2;
    (starts_with_off_sides(both(fixed, order, middle)) ? starts : fails) = middle;
  }
  return fails - 1;
}

Switches Replay::conflict_of(std::size_t last, Switches before) {
  Switches conflict{last};
  while (starts_with_off_sides(conflict)) {
    if (conflict.size() == kMostConflict || before.empty()) return {};
    const std::size_t next = first_that_fails(conflict, before, 0);
    conflict.push_back(before[next]);
    before.resize(next);
  }
  return conflict;
}

void Replay::find_reference() {
  const Deployment& d = plan_.deployment;
  starts_ = {{findings_.reference, false}};
  const std::string failure = last_failure_;
  if (!starts_with_off_sides({})) stop_unmeasured();
  Switches order = difference(findings_.deployed, findings_.reference);
  std::size_t start = 0;
  while (!starts_with_off_sides(order)) {
    const std::size_t at = first_that_fails({}, order, start);
    const std::size_t culprit = order[at];
    const std::string message = last_failure_;
    const Switches conflict =
        conflict_of(culprit, Switches(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(at)));
    if (!conflict.empty()) infeasible_.push_back(conflict);
    std::vector<std::string> others;
    for (const std::size_t s : conflict)
      if (s != culprit) others.push_back(d.switches[s].name);
    findings_.unswitchable.push_back({culprit, others, conflict.size() == 1, message});
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(at));
    kept_.push_back(culprit);
    start = at;
  }
  findings_.reference = with_off_sides(order);
  // Those that it needs stay on with it.
  for (const std::size_t s : difference(findings_.reference, reference_variant(d)))
    if (std::find(kept_.begin(), kept_.end(), s) == kept_.end()) findings_.unswitchable.push_back({s, {}, false, {}});
  findings_.reasons.push_back(
      one_variant() ? fmt::format("no reference launches, so only the pass rate as deployed is measured ({})", failure)
                    : fmt::format("the reference has {} at the deployed side: all off does not launch ({})",
                                  fmt::join(kept_names(), ", "), failure));
}

std::vector<std::string> Replay::kept_names() const {
  std::vector<std::string> names;
  for (const std::size_t s : difference(findings_.reference, reference_variant(plan_.deployment)))
    names.push_back(plan_.deployment.switches[s].name);
  return names;
}

std::string Replay::or_unswitchable() const {
  std::vector<std::string> names;
  for (std::size_t s = 0; s < plan_.deployment.switches.size(); ++s)
    if (const SwitchSpec& spec = plan_.deployment.switches[s]; !spec.working_off) names.push_back(spec.name);
  for (const Unswitchable& u : findings_.unswitchable)
    if (u.alone) names.push_back(plan_.deployment.switches[u.index].name);
  return names.empty() ? "" : fmt::format(", or a switch that could not be turned: {}", fmt::join(names, ", "));
}

bool Replay::is_known_infeasible(const Variant& variant) const {
  return std::any_of(infeasible_.begin(), infeasible_.end(), [&](const Switches& conflict) {
    return std::all_of(conflict.begin(), conflict.end(),
                       [&](std::size_t s) { return variant[s] != findings_.deployed[s]; });
  });
}

}  // namespace plumb::investigator
