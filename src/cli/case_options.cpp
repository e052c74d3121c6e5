#include "cli/case_options.h"

#include <limits>

#include <CLI/CLI.hpp>

#include "server/command_line.h"

namespace plumb::cli {

void add_limits(CLI::App& command, investigator::Limits& limits) {
  server::takes_whole(
      command.add_option("--max-restarts", limits.max_restarts, "launches at most")->capture_default_str(), 1, 100000);
  server::takes_number(
      command.add_option("--max-minutes", limits.max_minutes, "minutes at most")->capture_default_str(), 0.01, 100000);
  server::takes_whole(command.add_option("--max-tokens", limits.max_tokens, "prompt tokens at most; 0: no limit")
                          ->capture_default_str(),
                      0, std::numeric_limits<std::int64_t>::max());
}

}  // namespace plumb::cli
