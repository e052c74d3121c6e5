#pragma once

#include <string_view>

namespace CLI {
class App;
}

namespace plumb::cli {

/// What a script may conclude from the exit code; the same for every command.
enum Exit : int {
  kClean = 0,         // nothing found, and everything that was to be covered was
  kFinding = 1,       // a fault or a difference
  kInconclusive = 2,  // not enough evidence, or something was not covered
  kError = 3          // usage, bad input, or a tool failed; for demo also a wrong verdict
};

// Each adds one subcommand to `app`: its options and a callback that runs it and stores its exit code in `exit_code`,
// which must outlive the parse. One file a command: src/cli/<name>_command.cpp. main.cpp lists them.
void add_demo_command(CLI::App& app, int& exit_code);
void add_investigate_command(CLI::App& app, int& exit_code);
void add_probe_command(CLI::App& app, int& exit_code);
void add_isolate_command(CLI::App& app, int& exit_code);
void add_report_command(CLI::App& app, int& exit_code);
void add_serve_command(CLI::App& app, int& exit_code);
void add_golden_command(CLI::App& app, int& exit_code);
void add_export_command(CLI::App& app, int& exit_code);
void add_generate_command(CLI::App& app, int& exit_code);
void add_tokenize_command(CLI::App& app, int& exit_code);
void add_switches_command(CLI::App& app, int& exit_code);
void add_bench_command(CLI::App& app, int& exit_code);
void add_inventory_command(CLI::App& app, int& exit_code);
void add_rank_command(CLI::App& app, int& exit_code);

/// Prints "plumb: <message>" to stderr and returns kError.
int fail(std::string_view message);

}  // namespace plumb::cli
