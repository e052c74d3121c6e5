#pragma once

#include <string>
#include <vector>

namespace plumb::investigator {

/// Twenty conversations in V4's encoding, always the same, on which shifts of log-probabilities are measured:
/// eight of about 256 tokens, eight of 1,024 and four of 4,096, facts stated and asked for on the way, as the probes
/// do.
std::vector<std::string> fixed_texts();

}  // namespace plumb::investigator
