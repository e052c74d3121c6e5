#pragma once

// What an investigation will do, before it does anything.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "investigator/investigation.h"

namespace plumb::investigator {

/// The plan of an investigation: the probes that fit. Errors: none fits, or one would be longer than kMaxPromptTokens.
Result<Plan> make_plan(const Deployment& deployment, std::uint64_t seed, const Limits& limits);

/// What the deployment file says about window, chunk, page and maximum length.
Shape shape_of(const Deployment& deployment);

/// What an investigation would do and about what that costs; launches nothing.
Result<std::string> describe_plan(const Deployment& deployment, const Limits& limits);

/// The same as one JSON document: {"plan": {deployed, reference, budget, probes, launches, costs}}.
Result<std::string> plan_json(const Deployment& deployment, const Limits& limits);

/// What must not change under a case: commands, switches and what is asked. The environment of processes may, and how
/// long plumb waits for a start and how it stops.
std::string hash_deployment(const Deployment& deployment);

}  // namespace plumb::investigator
