#include <exception>

#include <CLI/CLI.hpp>

#include "base/version.h"
#include "cli/commands.h"
#include "server/command_line.h"

int main(int argc, char** argv) try {
  using namespace plumb::cli;
  CLI::App app{"Plumb finds out why an LLM server lost the thread, and serves DeepSeek-V4."};
  app.name("plumb");
  app.set_version_flag("--version", plumb::kPlumbVersion);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 clean, 1 fault or difference found, 2 inconclusive or not covered, 3 usage or tool error.");

  int exit_code = kClean;
  add_demo_command(app, exit_code);
  add_investigate_command(app, exit_code);
  add_probe_command(app, exit_code);
  add_isolate_command(app, exit_code);
  add_report_command(app, exit_code);
  add_serve_command(app, exit_code);
  add_golden_command(app, exit_code);
  add_export_command(app, exit_code);
  add_generate_command(app, exit_code);
  add_tokenize_command(app, exit_code);
  add_switches_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_inventory_command(app, exit_code);
  add_rank_command(app, exit_code);

  return plumb::server::run_command_line(app, argc, argv, exit_code);
} catch (const std::exception& e) {
  return plumb::cli::fail(e.what());
}
