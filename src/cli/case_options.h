#pragma once

#include <optional>
#include <string>

#include "investigator/investigation.h"

namespace CLI {
class App;
}

namespace plumb::cli {

/// Adds --max-restarts, --max-minutes and --max-tokens.
void add_limits(CLI::App& command, investigator::Limits& limits);

}  // namespace plumb::cli
