#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/case_options.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report_options.h"
#include "investigator/report.h"

namespace plumb::cli {
namespace {

struct Args {
  std::string case_dir;
  bool json = false;
  ReportOptions report;
  investigator::Limits limits;
};

int run(const Args& args) {
  say_on_interrupt(fmt::format("plumb: interrupted; go on with: plumb isolate {}\n", args.case_dir));
  const auto resumed = investigator::resume_case(args.case_dir, args.limits, investigator::ProgressPrinter(stderr));
  if (!resumed) return fail(resumed.error().message);
  if (const auto done = write_junit(args.report, args.case_dir, args.limits); !done) return fail(done.error().message);
  const investigator::Verdict& verdict = resumed->outcome.findings.verdict;
  const std::string out = args.json ? investigator::verdict_json(verdict)
                                    : investigator::summary(resumed->outcome, resumed->go_on) +
                                          "report: " + (std::filesystem::path(args.case_dir) / "report.html").string() +
                                          ", report.md\n";
  std::fputs(out.c_str(), stdout);
  return verdict.exit_code();
}

}  // namespace

void add_isolate_command(CLI::App& app, int& exit_code) {
  auto args = std::make_shared<Args>();
  CLI::App* command = app.add_subcommand("isolate", "go on with a case from its journal until there is a verdict");
  command->add_option("case", args->case_dir, "case folder")->required();
  command->add_flag("--json", args->json, "print the verdict as one JSON document");
  add_junit(*command, args->report);
  add_limits(*command, args->limits);
  command->callback([args, &exit_code] { exit_code = run(*args); });
}

}  // namespace plumb::cli
