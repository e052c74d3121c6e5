#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/durable_file.h"
#include "cli/case_options.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report_options.h"
#include "investigator/given_beside.h"
#include "investigator/plan_lint.h"
#include "investigator/report.h"
#include "server/command_line.h"

namespace plumb::cli {
namespace {

struct Args {
  std::string deployment;
  std::string case_dir = "plumb-case";
  std::optional<std::uint64_t> seed;
  bool plan = false;
  bool resume = false;
  bool json = false;
  bool allow_load = false;
  std::string conversation;
  std::string ranks;
  bool redact = false;
  ReportOptions report;
  investigator::Limits limits;
};

int run(const Args& args) {
  if (args.allow_load) return fail("--allow-load: probes under load are not supported yet");
  const auto text = read_file(args.deployment);
  if (!text) return fail(text.error().message);
  std::vector<investigator::FileNote> notes;
  auto deployment = investigator::parse_deployment(*text, args.deployment, &notes);
  if (!deployment) return fail(deployment.error().message);
  if (const auto given = investigator::take_given(*deployment, args.conversation, args.ranks); !given)
    return fail(given.error().message);
  deployment->given.redact = args.redact;
  if (args.plan) {
    const auto plan = args.json ? investigator::explained_plan_json(*deployment, args.limits, notes)
                                : investigator::explain_plan(*deployment, args.limits, *text, notes);
    if (!plan) return fail(plan.error().message);
    std::fputs(plan->c_str(), stdout);
    return kClean;
  }
  investigator::InvestigateOptions options;
  options.case_dir = args.case_dir;
  options.deployment_toml = *text;
  options.seed = args.seed;
  options.resume = args.resume;
  options.limits = args.limits;
  options.progress = investigator::ProgressPrinter(stderr);
  say_on_interrupt(fmt::format("plumb: interrupted; go on with: plumb investigate {} --case {} --resume\n",
                               args.deployment, args.case_dir));
  const auto live = start_live_page(args.report);
  if (!live) return fail(live.error().message);
  options.live = live->get();
  const auto outcome = investigator::investigate(*deployment, options);
  if (!outcome) return fail(outcome.error().message);
  if (const auto done = write_junit(args.report, options.case_dir, args.limits); !done)
    return fail(done.error().message);
  const std::string out =
      args.json ? investigator::verdict_json(outcome->findings.verdict)
                : investigator::summary(*outcome,
                                        investigator::go_on_command(options.case_dir, outcome->findings, args.limits)) +
                      "report: " + (options.case_dir / "report.html").string() + ", report.md\n";
  std::fputs(out.c_str(), stdout);
  return outcome->findings.verdict.exit_code();
}

}  // namespace

void add_investigate_command(CLI::App& app, int& exit_code) {
  auto args = std::make_shared<Args>();
  CLI::App* command =
      app.add_subcommand("investigate", "find the switch or switches that break recall in a deployment");
  command->add_option("deployment", args->deployment, "deployment file (TOML)")->required();
  command->add_option("--case", args->case_dir, "folder for journal, logs and report")->capture_default_str();
  server::takes_seed(command->add_option("--seed", args->seed, "of the probes; without it from the operating system"));
  command->add_flag("--plan", args->plan, "explain each line of the file and what would be done, launch nothing");
  command->add_flag("--resume", args->resume, "go on with the case where it was interrupted");
  command->add_flag("--json", args->json, "print the verdict, or with --plan the plan, as one JSON document");
  command->add_option("--conversation", args->conversation,
                      "a conversation of yours (JSON: a request body or a list of messages) to replay and to plant a "
                      "code in");
  command->add_option("--ranks", args->ranks, "what plumb rank --json printed: where to look first");
  add_redact(*command, args->redact);
  add_listen(*command, args->report);
  add_junit(*command, args->report);
  command->add_flag("--allow-load", args->allow_load, "allow probes under load (not supported yet)");
  add_limits(*command, args->limits);
  command->callback([args, &exit_code] { exit_code = run(*args); });
}

}  // namespace plumb::cli
