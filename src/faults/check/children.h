#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace plumb::faults {

/// One piece of work for a process of its own, and what it says.
using Job = std::function<std::string()>;

/// Runs each job in a forked child, at most `at_a_time` at once, and returns their texts in the order of the jobs. For
/// a process that has one thread only. A child that crashes, or is not done after timeout_s, gives an error; `done` is
/// called in this process after each one.
std::vector<Result<std::string>> run_in_children(const std::vector<Job>& jobs, int at_a_time, double timeout_s,
                                                 const std::function<void(std::size_t job)>& done);

}  // namespace plumb::faults
