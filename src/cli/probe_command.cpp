#include <cctype>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "investigator/probe_run.h"
#include "investigator/report.h"
#include "server/command_line.h"

namespace plumb::cli {
namespace {

constexpr std::int64_t kMaxLength = 1 << 24, kMaxTrials = 100000, kMaxInFlight = 1024;

struct Args {
  std::vector<std::string> targets;
  std::string junit;
  std::string logs = "plumb-logs";
  bool json = false;
  investigator::ProbeOptions options;
};

bool is_url(const std::string& text) { return text.find("://") != std::string::npos; }

// "127.0.0.1:8000", "localhost:8000/v1": a URL that lacks its scheme.
bool is_url_without_scheme(const std::string& text) {
  const std::size_t colon = text.find(':');
  return !is_url(text) && colon != std::string::npos && colon > 0 && colon + 1 < text.size() &&
         std::isdigit(static_cast<unsigned char>(text[colon + 1])) != 0 && !std::filesystem::exists(text);
}

int run(Args& args) {
  for (const std::string& target : args.targets)
    if (is_url_without_scheme(target))
      return fail("'" + target + "' is no file; for a running server write http://" + target);
  if (args.targets.size() == 1 && !is_url(args.targets[0])) {
    auto deployment = investigator::load_deployment(args.targets[0]);
    if (!deployment) return fail(deployment.error().message);
    args.options.deployment = std::move(*deployment);
    args.options.log_folder = args.logs;
  } else {
    for (const std::string& target : args.targets)
      if (!is_url(target)) return fail("'" + target + "' is no URL; two targets must both be URLs");
    args.options.urls = args.targets;
  }
  args.options.progress = investigator::ProgressPrinter(stderr);
  const auto report = investigator::run_probes(args.options);
  if (!report) return fail(report.error().message);
  if (!args.junit.empty())
    if (const auto done = investigator::write_atomically(args.junit, report->junit()); !done)
      return fail(done.error().message);
  std::fputs((args.json ? report->json() : report->table()).c_str(), stdout);
  return report->exit_code();
}

}  // namespace

void add_probe_command(CLI::App& app, int& exit_code) {
  auto args = std::make_shared<Args>();
  CLI::App* command = app.add_subcommand("probe", "context-fidelity probes alone; a CI gate");
  command->add_option("target", args->targets, "URL [URL_B], or a deployment file")->required()->expected(1, 2);
  std::string suites;
  std::string explained = "Probes:\n";
  for (const investigator::Probe& probe : investigator::probes()) {
    suites += std::string(probe.name) + ", ";
    explained += fmt::format("  {:<10}  {}\n", probe.name, probe.asks);
  }
  command->footer(explained + "docs/probes.md says what each sends and what a right answer is.");
  command->add_option("--suite", args->options.suite, suites + "or all")->capture_default_str();
  server::takes_whole(
      command->add_option("--lengths", args->options.lengths, "of the needle probe, in tokens")->delimiter(','), 1,
      kMaxLength);
  server::takes_whole(
      command->add_option("--trials", args->options.trials, "of each probe and length")->capture_default_str(), 1,
      kMaxTrials);
  server::takes_whole(command->add_option("--in-flight", args->options.in_flight,
                                          "trials at a time; without it max_in_flight of the file, or 1"),
                      1, kMaxInFlight);
  command->add_option("--key-env", args->options.key_env, "of URLs: the environment variable that holds their key");
  server::takes_seed(command->add_option("--seed", args->options.seed, "of the prompts")->capture_default_str());
  command->add_option("--logs", args->logs, "folder for the logs of launched processes")->capture_default_str();
  command->add_option("--junit", args->junit, "write a JUnit file");
  command->add_flag("--json", args->json, "print one JSON document");
  command->callback([args, &exit_code] { exit_code = run(*args); });
}

}  // namespace plumb::cli
