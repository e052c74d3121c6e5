#include "cli/case_options.h"

#include <CLI/CLI.hpp>

namespace plumb::cli {

void add_limits(CLI::App& command, investigator::Limits& limits) {
  command.add_option("--max-restarts", limits.max_restarts, "launches at most")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command.add_option("--max-minutes", limits.max_minutes, "minutes at most")
      ->check(CLI::Range(0.01, 100000.0))
      ->capture_default_str();
  command.add_option("--max-tokens", limits.max_tokens, "prompt tokens at most; 0: no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

}  // namespace plumb::cli
