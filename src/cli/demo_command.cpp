#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/durable_file.h"
#include "cli/case_options.h"
#include "cli/commands.h"
#include "cli/demo_server.h"
#include "cli/interrupt.h"
#include "cli/report_options.h"
#include "engine/state.h"
#include "investigator/demo.h"
#include "investigator/investigate.h"
#include "investigator/report.h"
#include "model/config.h"
#include "runtime/runtime.h"
#include "server/command_line.h"
#include "switches/switches.h"

namespace plumb::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "phantom/checkpoint";  // in the repository

struct Args {
  std::optional<std::uint64_t> seed;
  int faults = 1;
  std::string stratum;
  bool all_kinds = false;
  bool anonymous = false;
  std::string backend = "cpu";
  std::string case_dir;
  bool resume = false;
  bool json = false;
  ReportOptions report;
  investigator::Limits limits;
};

// The repository: PLUMB_HOME, which ./plumb sets, or two folders above the executable (build/release/plumb).
Result<fs::path> find_home(const fs::path& executable) {
  const char* named = std::getenv("PLUMB_HOME");
  fs::path home = named != nullptr ? fs::path(named) : executable.parent_path().parent_path().parent_path();
  if (!fs::exists(home / kModel / "config.json"))
    return error("{}: has no {}; set PLUMB_HOME to the folder of the repository", home.string(), kModel);
  return home;
}

std::vector<investigator::DemoSwitch> deployed_switches() {
  std::vector<investigator::DemoSwitch> list;
  for (const Switch& entry : kSwitches) {
    const bool stated = entry.op_budget.metric == Metric::exact || entry.shift > 0;
    list.push_back({.name = std::string(entry.name),
                    .deployed_on = entry.by_default,
                    .by_request = entry.scope == Scope::request,
                    .shift = stated ? entry.shift : -1});
  }
  return list;
}

Result<investigator::DemoOptions> options_of(const Args& args) {
  auto options = demo_server();
  if (!options) return options;
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  options->case_dir =
      fs::absolute(args.case_dir.empty() ? fmt::format("cases/demo-{:%Y%m%dT%H%M%SZ}", now) : args.case_dir);
  options->backend = args.backend;
  options->seed = args.seed;
  constexpr std::array kByCount{"clean", "one", "two"};
  options->stratum = args.stratum.empty() ? std::string(kByCount[static_cast<std::size_t>(args.faults)]) : args.stratum;
  options->all_kinds = args.all_kinds;
  options->anonymous = args.anonymous;
  options->resume = args.resume;
  return options;
}

Result<std::string> investigate_blind(const investigator::DemoCase& blind, const Args& args,
                                      investigator::LivePage* live) {
  const auto text = read_file(blind.deployment);
  if (!text) return tl::unexpected(text.error());
  const auto deployment = investigator::parse_deployment(*text, blind.deployment.string());
  if (!deployment) return tl::unexpected(deployment.error());
  investigator::InvestigateOptions options;
  options.case_dir = blind.case_dir;
  options.deployment_toml = *text;
  options.seed = blind.probe_seed;
  // A demo may have been interrupted between its deal and its first launch.
  options.resume = blind.resume && investigator::has_journal(blind.case_dir);
  options.limits = args.limits;
  options.surroundings = blind.surroundings;
  options.progress = investigator::ProgressPrinter(stderr);
  options.live = live;
  const auto outcome = investigator::investigate(*deployment, options);
  if (!outcome) return tl::unexpected(outcome.error());
  if (const auto done = write_junit(args.report, blind.case_dir, args.limits); !done)
    return tl::unexpected(done.error());
  if (!args.json)
    fmt::print("\n{}", investigator::summary(
                           *outcome, investigator::go_on_command(blind.case_dir, outcome->findings, args.limits)));
  return investigator::verdict_json(outcome->findings.verdict);
}

std::string planted_text(const investigator::Planted& planted) {
  std::string text;
  for (const investigator::PlantedFault& fault : planted.faults) {
    const std::string place =
        fault.host == "none"
            ? "under no switch"
            : fmt::format("on the {} side of {}", planted.stratum == "off-side" ? "off" : "on", fault.host);
    text += fmt::format("{}{} ({}) {}", text.empty() ? "" : ", and ", fault.kind, fault.form, place);
  }
  if (planted.rate < 1) text += fmt::format(", in {:.0f} % of the launches", 100 * planted.rate);
  if (!planted.masked_by.empty()) text += fmt::format(", unless {} is on", planted.masked_by);
  return text.empty() ? "nothing" : text;
}

void print_result(const investigator::DemoResult& result, const fs::path& case_dir) {
  fmt::print("\nopened: the envelope's sha256 is {}, as it was sealed\n", result.commitment);
  fmt::print("planted: {}, seed {}\n", planted_text(result.planted), result.planted.seed);
  fmt::print("verdict: {}; {} ({:.0f} s{})\n", result.verdict, result.match ? "it matches" : "it does not match",
             result.seconds, result.resumed ? " of the run that reached it" : "");
  fmt::print("report: {}, report.md\n", (case_dir / "report.html").string());
}

int run_demo_command(const Args& args) {
  auto options = options_of(args);
  if (!options) return fail(options.error().message);
  options->say = [&args](const std::string& line) {
    fmt::print(args.json ? stderr : stdout, "{}\n", line);
    std::fflush(stdout);
  };
  options->warn = [](const std::string& line) { fmt::print(stderr, "plumb: {}\n", line); };
  options->say(fmt::format("case: {}", options->case_dir.string()));
  say_on_interrupt(
      fmt::format("plumb: interrupted; go on with: plumb demo --case {} --resume\n", options->case_dir.string()));
  const auto live = start_live_page(args.report);
  if (!live) return fail(live.error().message);
  const auto result = investigator::run_demo(
      *options, [&](const investigator::DemoCase& blind) { return investigate_blind(blind, args, live->get()); });
  if (!result) return fail(result.error().message);
  if (args.json)
    fmt::print("{}", result->json);
  else
    print_result(*result, options->case_dir);
  return result->exit_code;
}

}  // namespace

Result<investigator::DemoOptions> demo_server() {
  std::error_code failed;
  const fs::path executable = fs::read_symlink("/proc/self/exe", failed);
  if (failed) return error("/proc/self/exe: {}", failed.message());
  const auto home = find_home(executable);
  if (!home) return tl::unexpected(home.error());
  const auto config = load_model_config(*home / kModel);
  if (!config) return tl::unexpected(config.error());
  investigator::DemoOptions options;
  options.model = *home / kModel;
  options.executable = executable.parent_path() / "plumb-faulty";
  options.switches = deployed_switches();
  options.facts = {{"window", config->window},
                   {"index_topk", config->index_topk},
                   {"page", kPageTokens},
                   {"chunk", RuntimeOptions{}.chunk_tokens}};
  return options;
}

void add_demo_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("demo", "catch a fault that a dealer planted and sealed");
  auto args = std::make_shared<Args>();
  server::takes_seed(command->add_option("--seed", args->seed,
                                         "of the deal, for the dealer alone; without it from the operating system"));
  server::takes_whole(
      command->add_option("--faults", args->faults, "how many faults are planted: 0, 1 or 2")->capture_default_str(), 0,
      2);
  command
      ->add_option(
          "--stratum", args->stratum,
          "what sort of fault is planted, for tests of the verdict: clean, one, two (hosts), stochastic (in 60 % "
          "of the launches), no-switch, off-side or masked (by another switch); instead of --faults")
      ->check(CLI::IsMember({"clean", "one", "two", "stochastic", "no-switch", "off-side", "masked"}))
      ->excludes("--faults");
  command->add_flag("--all-kinds", args->all_kinds,
                    "draw from every plant that is known to do damage, not from four that are found fast");
  command->add_flag("--anonymous", args->anonymous,
                    "the deployment calls its switches s01, s02…: names give nothing away");
  server::takes_backend(
      command->add_option("--backend", args->backend, "of the server under test: cpu or ref")->capture_default_str());
  command->add_option("--case", args->case_dir, "folder for everything; default: cases/demo-<time>");
  command->add_flag("--resume", args->resume, "go on with the case where it was interrupted");
  command->add_flag("--json", args->json, "print one JSON document");
  add_listen(*command, args->report);
  add_junit(*command, args->report);
  add_limits(*command, args->limits);
  command->callback([args, &exit_code] {
    if (args->resume && args->case_dir.empty()) {
      exit_code = fail("demo --resume: which case? give --case DIR");
      return;
    }
    exit_code = run_demo_command(*args);
  });
}

}  // namespace plumb::cli
