#include "investigator/variants.h"

#include <algorithm>

#include "base/check.h"

namespace plumb::investigator {

std::optional<Variant> with_side(const Deployment& deployment, Variant variant, std::size_t index, bool on) {
  const auto& switches = deployment.switches;
  variant[index] = on;
  // Each pass settles at least one more switch, so the number of switches bounds the passes.
  for (std::size_t pass = 0; pass < switches.size(); ++pass)
    for (std::size_t i = 0; i < switches.size(); ++i)
      for (const std::string& name : switches[i].needs) {
        const auto it = std::find_if(switches.begin(), switches.end(), [&](const auto& s) { return s.name == name; });
        if (it == switches.end()) continue;
        const auto needed = static_cast<std::size_t>(it - switches.begin());
        if (!variant[i] || variant[needed]) continue;
        if (on)
          variant[needed] = true;
        else
          variant[i] = false;
      }
  if (variant[index] != on || !check_variant(deployment, variant)) return std::nullopt;
  return variant;
}

std::vector<std::size_t> difference(const Variant& a, const Variant& b) {
  CHECK(a.size() == b.size());
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) indices.push_back(i);
  return indices;
}

std::vector<AppliedSide> applied_sides(const Deployment& deployment, const Variant& variant) {
  CHECK(variant.size() == deployment.switches.size());
  std::vector<AppliedSide> applied;
  const auto& switches = deployment.switches;
  for (std::size_t i = 0; i < switches.size(); ++i) {
    const SwitchSpec& spec = switches[i];
    if (spec.value_of.empty() || variant[i]) {
      applied.push_back({&spec, variant[i] ? &spec.on : &spec.off});
      continue;
    }
    bool first = true;
    bool any_on = false;
    for (std::size_t j = 0; j < switches.size(); ++j) {
      if (switches[j].value_of != spec.value_of) continue;
      first &= j >= i;
      any_on |= static_cast<bool>(variant[j]);
    }
    if (first && !any_on) applied.push_back({&spec, &spec.off});
  }
  return applied;
}

std::optional<std::size_t> endpoint_named(const Deployment& deployment, const std::string& name) {
  for (std::size_t i = 0; i < deployment.endpoints.size(); ++i)
    if (deployment.endpoints[i].name == name) return i;
  return std::nullopt;
}

bool same_processes(const Deployment& deployment, const Variant& a, const Variant& b) {
  const std::vector<std::size_t> turned = difference(a, b);
  return std::all_of(turned.begin(), turned.end(),
                     [&](std::size_t s) { return deployment.switches[s].apply == "request"; });
}

std::size_t endpoint_of(const Deployment& deployment, const Variant& variant) {
  std::size_t index = 0;
  for (const AppliedSide& applied : applied_sides(deployment, variant))
    if (!applied.side->endpoint.empty()) index = endpoint_named(deployment, applied.side->endpoint).value_or(index);
  return index;
}

Variant as_deployed(const Deployment& deployment) {
  Variant variant;
  for (const SwitchSpec& spec : deployment.switches) variant.push_back(spec.deployed_on);
  return variant;
}

Variant reference_variant(const Deployment& deployment) {
  Variant variant;
  for (const SwitchSpec& spec : deployment.switches) variant.push_back(!spec.working_off);
  return variant;
}

Result<void> check_variant(const Deployment& deployment, const Variant& variant) {
  CHECK(variant.size() == deployment.switches.size());
  const auto is_on = [&](const std::string& name) {
    for (std::size_t i = 0; i < variant.size(); ++i)
      if (deployment.switches[i].name == name) return static_cast<bool>(variant[i]);
    return false;
  };
  for (std::size_t i = 0; i < variant.size(); ++i) {
    const SwitchSpec& spec = deployment.switches[i];
    if (!variant[i] && !spec.working_off)
      return error("switch {} is off, but its off side is known not to launch (working_off = false)", spec.name);
    if (!variant[i]) continue;
    for (const std::string& name : spec.needs)
      if (!is_on(name)) return error("switch {} is on and requires {}, which is off", spec.name, name);
    for (const std::string& name : spec.conflicts)
      if (is_on(name)) return error("switches {} and {} are both on and conflict", spec.name, name);
  }
  return {};
}

std::string describe(const Deployment& deployment, const Variant& variant) {
  std::string text;
  for (const AppliedSide& applied : applied_sides(deployment, variant)) {
    const SwitchSpec& spec = *applied.spec;
    const bool on = applied.side == &spec.on;
    const std::string& name = spec.value_of.empty() ? spec.name : spec.value_of;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name,
                        !on                     ? "off"
                        : spec.value_of.empty() ? "on"
                                                : spec.value);
  }
  return text;
}

}  // namespace plumb::investigator
