#pragma once

#include <string>

namespace plumb::cli {

struct SwitchCheckArgs {
  std::string model;  // folder of a checkpoint
  std::string backend = "cpu";
  bool json = false;
};

/// Measures on the fixed texts how far each switch's on side moves log-probabilities of `model`, against the committed
/// shift. Returns the exit code: 0, 1 when a switch is over its shift, 3 with a message when the model does not load.
int run_switch_check(const SwitchCheckArgs& args);

}  // namespace plumb::cli
