#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "switches/switches.h"

namespace plumb::cli {
namespace {

const char* scope_name(Scope scope) { return scope == Scope::request ? "request" : "launch"; }
const char* metric_name(Metric metric) { return metric == Metric::exact ? "exact" : "nmse"; }

void print_json() {
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  for (const Switch& entry : kSwitches)
    table.push_back({{"name", entry.name},
                     {"default", entry.by_default ? "on" : "off"},
                     {"scope", scope_name(entry.scope)},
                     {"on", entry.on},
                     {"off", entry.off},
                     {"op_budget", {{"metric", metric_name(entry.op_budget.metric)}, {"bound", entry.op_budget.bound}}},
                     {"shift", entry.shift},
                     {"source", entry.source}});
  fmt::print("{}\n", nlohmann::ordered_json{{"switches", table}}.dump(2));
}

void print_text() {
  for (const Switch& entry : kSwitches) {
    const std::string budget =
        entry.op_budget.metric == Metric::exact ? "equal to the bit" : fmt::format("nmse <= {}", entry.op_budget.bound);
    fmt::print("{}  (default {}, per {}; {}; shift {})\n  on   {}\n  off  {}\n  why  {}\n", entry.name,
               entry.by_default ? "on" : "off", scope_name(entry.scope), budget, entry.shift, entry.on, entry.off,
               entry.source);
  }
}

}  // namespace

void add_switches_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("switches", "list the engine's switches: sides, defaults, budgets");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print one JSON document");
  command->callback([json, &exit_code] {
    *json ? print_json() : print_text();
    exit_code = kClean;
  });
}

}  // namespace plumb::cli
