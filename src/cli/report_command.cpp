#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/report_options.h"
#include "investigator/given_beside.h"
#include "investigator/report.h"

namespace plumb::cli {
namespace {

struct Args {
  std::string case_dir;
  bool json = false;
  bool redact = false;
  ReportOptions report;
};

int run(const Args& args) {
  if (args.redact) {
    if (!investigator::has_journal(args.case_dir)) return fail(args.case_dir + ": is no case: it has no journal");
    if (const auto done = investigator::redact_case(args.case_dir); !done) return fail(done.error().message);
  }
  const auto c = investigator::report_case(args.case_dir, {});
  if (!c) return fail(c.error().message);
  if (const auto done = write_junit(args.report, args.case_dir, {}); !done) return fail(done.error().message);
  const investigator::Verdict& verdict = c->outcome.findings.verdict;
  std::fputs(
      (args.json ? investigator::verdict_json(verdict) : investigator::report_markdown(investigator::make_report(*c)))
          .c_str(),
      stdout);
  return verdict.exit_code();
}

}  // namespace

void add_report_command(CLI::App& app, int& exit_code) {
  auto args = std::make_shared<Args>();
  CLI::App* command = app.add_subcommand("report", "write the report of a case again from its journal, and print it");
  command->add_option("case", args->case_dir, "case folder")->required();
  command->add_flag("--json", args->json, "print the verdict as one JSON document");
  add_redact(*command, args->redact);
  add_junit(*command, args->report);
  command->callback([args, &exit_code] { exit_code = run(*args); });
}

}  // namespace plumb::cli
