#pragma once

#include <string>

#include "base/process.h"
#include "base/result.h"

namespace plumb::investigator {

struct ProgramOutput {
  int status = 0;    // of waitpid
  std::string text;  // stdout and stderr together, the first 1 MiB
  bool ok() const { return status == 0; }
};

/// Runs a short program to its end, without input. Errors: it cannot be started; it does not end within timeout_s (its
/// process group is killed then).
Result<ProgramOutput> run_program(const Command& command, double timeout_s);

}  // namespace plumb::investigator
