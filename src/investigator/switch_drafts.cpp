#include "investigator/switch_drafts.h"

#include <algorithm>
#include <map>
#include <set>

namespace plumb::investigator {
namespace {

// The draft for each role of its processes, or itself.
std::vector<SwitchSpec> by_role(const SwitchDraft& draft, const std::vector<ProcessSpec>& processes) {
  if (!draft.per_role) return {draft.spec};
  std::map<std::string, std::vector<std::string>> names;
  std::vector<std::string> roles;  // in the order of the file
  for (const ProcessSpec& process : processes) {
    if (!acts_on(draft.spec, process.name)) continue;
    if (names[process.role].empty()) roles.push_back(process.role);
    names[process.role].push_back(process.name);
  }
  std::vector<SwitchSpec> specs;
  for (const std::string& role : roles) {
    SwitchSpec spec = draft.spec;
    spec.name += "@" + role;
    spec.role = role;
    spec.processes = names[role];
    specs.push_back(std::move(spec));
  }
  return specs;
}

// One for each value, which exclude each other.
std::vector<SwitchSpec> by_value(const SwitchDraft& draft, const SwitchSpec& spec) {
  std::vector<SwitchSpec> specs;
  if (!draft.has_many_sides()) {
    specs.push_back(spec);
    if (!draft.values.empty()) specs[0].on = draft.values[0].second;
    return specs;
  }
  const auto name_of = [&](const std::string& value) {
    return draft.spec.name + ":" + value + (spec.role.empty() ? "" : "@" + spec.role);
  };
  for (const auto& [value, side] : draft.values) {
    SwitchSpec one = spec;
    one.name = name_of(value);
    one.value_of = spec.name;
    one.value = value;
    one.on = side;
    one.deployed_on = draft.deployed == value;
    one.working_off = spec.working_off || !one.deployed_on;
    for (const auto& [other, unused] : draft.values)
      if (other != value) one.conflicts.push_back(name_of(other));
    specs.push_back(std::move(one));
  }
  return specs;
}

struct Expanded {
  std::vector<SwitchSpec> specs;
  std::map<std::string, std::vector<std::size_t>> of;  // name in the file -> places in specs
};

// Which switches a name of `requires` or `conflicts` means for a switch.
std::vector<std::string> meant(const Expanded& all, const std::string& name, const SwitchSpec& by, bool one_value) {
  const auto found = all.of.find(name);
  if (found == all.of.end()) {
    // "a:x" of a switch that is also split by role.
    std::vector<std::string> names;
    for (const SwitchSpec& spec : all.specs)
      if (!spec.role.empty() && spec.name == name + "@" + spec.role && (by.role.empty() || by.role == spec.role))
        names.push_back(spec.name);
    return names.empty() ? std::vector<std::string>{name} : names;
  }
  std::vector<std::string> same_role, any_role;
  for (const std::size_t i : found->second) {
    const SwitchSpec& spec = all.specs[i];
    if (one_value && !spec.value.empty()) return {name};  // which value? check_deployment asks
    any_role.push_back(spec.name);
    if (!by.role.empty() && spec.role == by.role) same_role.push_back(spec.name);
  }
  return same_role.empty() ? any_role : same_role;
}

Result<void> check_per_role(const SwitchDraft& draft, const std::vector<SwitchSpec>& roles, const Locate& locate) {
  if (!draft.per_role) return {};
  const std::string where = locate("switch " + draft.spec.name);
  if (draft.spec.apply != "restart")
    return error("{}switch {}: per_role needs apply = \"restart\": a request and a patch reach every role", where,
                 draft.spec.name);
  if (roles.size() < 2)
    return error(
        "{}switch {}: per_role, but its processes have {} role: give them roles (prefill, decode), or remove it", where,
        draft.spec.name, roles.size());
  return {};
}

}  // namespace

std::string SwitchDraft::side_names() const {
  std::string names = "off";
  for (const auto& [name, side] : values) names += ", " + name;
  return names;
}

Result<std::vector<SwitchSpec>> expand_switches(const std::vector<SwitchDraft>& drafts,
                                                const std::vector<ProcessSpec>& processes, const Locate& locate) {
  Expanded all;
  for (const SwitchDraft& draft : drafts) {
    const std::string& name = draft.spec.name;
    const std::string where = locate("switch " + name);
    if (!is_name(name))
      return error("{}switch name \"{}\": use 1 to 100 letters, digits, '_', '-' and '.'", where, name);
    if (all.of.count(name) > 0) return error("{}switch \"{}\" exists twice: rename one", where, name);
    const std::vector<SwitchSpec> roles = by_role(draft, processes);
    if (auto checked = check_per_role(draft, roles, locate); !checked) return tl::unexpected(checked.error());
    for (const SwitchSpec& role : roles)
      for (SwitchSpec& spec : by_value(draft, role)) {
        all.of[name].push_back(all.specs.size());
        all.specs.push_back(std::move(spec));
      }
  }
  std::vector<SwitchSpec> resolved = all.specs;
  for (SwitchSpec& spec : resolved)
    for (auto* names : {&spec.needs, &spec.conflicts}) {
      std::vector<std::string> out;
      for (const std::string& name : *names)
        for (std::string& one : meant(all, name, spec, names == &spec.needs))
          if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(std::move(one));
      *names = std::move(out);
    }
  return resolved;
}

}  // namespace plumb::investigator
