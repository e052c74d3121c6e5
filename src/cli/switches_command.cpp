#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/switches_check.h"
#include "server/command_line.h"
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

std::string budget_text(const OpBudget& budget) {
  return budget.metric == Metric::exact ? "equal to the bit" : fmt::format("nmse <= {}", budget.bound);
}

// docs/switches.md; a test holds the file to it.
void print_markdown() {
  fmt::print(
      "# Switches\n\n"
      "Every optimisation of the engine is a switch; off is always the reference. `plumb switches --markdown` prints "
      "this "
      "page.\n`--set NAME=on|off[@LAYERS]` sets one at launch, the body field `\"plumb\": {{\"switches\": "
      "{{\"NAME\": \"on|off[@LAYERS]\"}}}}` one of\nscope request for one request. Budget: how far the on side may be "
      "from "
      "the reference in its twin test. Shift: how far it moves\nlog-probabilities of the shipped checkpoint, as half "
      "the mean "
      "square difference over fixed texts.\n`plumb switches --check MODEL` measures the shifts; its exit code is 0 "
      "when "
      "none is over what stands here. It runs the engine alone:\nswitches of the runtime's steps are \"not covered "
      "here\", which does not count, for they are equal to the bit and tests hold them\nto it.\n\n"
      "| switch | default | scope | layers | on | off | budget | shift | source |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const Switch& entry : kSwitches)
    fmt::print("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |\n", entry.name, entry.by_default ? "on" : "off",
               scope_name(entry.scope), entry.per_layer ? "each" : "-", entry.on, entry.off,
               budget_text(entry.op_budget), entry.shift, entry.source);
}

void print_text() {
  for (const Switch& entry : kSwitches) {
    const std::string budget = budget_text(entry.op_budget);
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
  auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "print docs/switches.md")->excludes("--json");
  auto check = std::make_shared<SwitchCheckArgs>();
  auto* model =
      command->add_option("--check", check->model,
                          "folder of a checkpoint: measure how far each switch moves it. Steps of the runtime are "
                          "not covered here and do not count: tests hold them to equality to the bit");
  model->excludes("--markdown");
  server::takes_backend(command->add_option("--backend", check->backend, "who computes the check")->needs(model));
  command->callback([json, markdown, check, model, &exit_code] {
    if (model->count() > 0) {
      check->json = *json;
      exit_code = run_switch_check(*check);
      return;
    }
    *json ? print_json() : *markdown ? print_markdown() : print_text();
    exit_code = kClean;
  });
}

}  // namespace plumb::cli
