#include "investigator/inventory/inventory.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace plumb::investigator::inventory {
namespace {

using nlohmann::ordered_json;

bool is_numerical(const Finding& f) { return f.cls != Class::other && f.role == Role::source && !f.plumbing; }

ordered_json counts_json(const DiffCounts& n) {
  return {{"changed", n.changed},       {"read", n.read},        {"tests", n.tests},
          {"converters", n.converters}, {"docs", n.docs},        {"other_language", n.other_language},
          {"binary", n.binary},         {"huge", n.huge},        {"submodules", n.submodules},
          {"links", n.links},           {"not_utf8", n.not_utf8}};
}

}  // namespace

int Inventory::numerical() const {
  return static_cast<int>(std::count_if(findings.begin(), findings.end(), is_numerical));
}

Result<Inventory> take_inventory(const std::filesystem::path& repository, std::string_view range) {
  auto diff = read_range(repository, range);
  if (!diff) return tl::unexpected(diff.error());
  return Inventory{diff->from, diff->to, diff->counts, std::move(diff->notes), classify(diff->files)};
}

ordered_json gate_json(const std::optional<Gate>& gate) {
  if (!gate) return nullptr;
  return {{"name", gate->name},
          {"kind", gate->environment ? "env" : "flag"},
          {"default", gate->on ? *gate->on ? "on" : "off" : "unknown"},
          {"set_by_launch", gate->set_by_launch},
          {"inverted", gate->inverted}};
}

ordered_json to_json(const Inventory& inventory) {
  ordered_json findings = ordered_json::array();
  for (const Finding& f : inventory.findings)
    findings.push_back({{"file", f.file},
                        {"hunk", f.hunk},
                        {"line", f.line},
                        {"function", f.function},
                        {"class", entry(f.cls).word},
                        {"what", f.what},
                        {"language", word(f.language)},
                        {"role", word(f.role)},
                        {"area", f.area->name},
                        {"phase", f.phase},
                        {"reach", {{"per_layer", f.per_layer}, {"per_token", f.per_token}}},
                        {"gate", gate_json(f.gate)}});
  return {{"from", inventory.from},
          {"to", inventory.to},
          {"files", counts_json(inventory.counts)},
          {"notes", inventory.notes},
          {"findings", findings}};
}

std::string to_text(const Inventory& inventory) {
  std::string out;
  int rest = 0;
  for (const Finding& f : inventory.findings) {
    if (!is_numerical(f)) {
      ++rest;
      continue;
    }
    out += fmt::format("{}:{}  {}  {}{}\n    {}; {}, {}{}{}\n", f.file, f.line, entry(f.cls).word,
                       f.function.empty() ? "" : "in " + f.function + " ", f.hunk, f.what, f.area->name,
                       f.phase == "both" ? "prefill and decode" : f.phase, f.per_layer ? ", once a layer or more" : "",
                       f.gate ? fmt::format(", behind {} ({} unless set)", f.gate->name,
                                            f.gate->on ? *f.gate->on ? "on" : "off" : "default unknown")
                              : "");
  }
  const DiffCounts& n = inventory.counts;
  out += fmt::format("{} files changed, {} read ({} tests, {} converters); {} numerical changes, {} others\n",
                     n.changed, n.read, n.tests, n.converters, inventory.numerical(), rest);
  out += fmt::format("set aside: {} docs, {} in other languages, {} binary, {} huge, {} submodules, {} links\n", n.docs,
                     n.other_language, n.binary, n.huge, n.submodules, n.links);
  for (const std::string& note : inventory.notes) out += "note: " + note + "\n";
  return out;
}

}  // namespace plumb::investigator::inventory
