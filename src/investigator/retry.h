#pragma once

#include <optional>

#include "investigator/http_client.h"

namespace plumb::investigator {

inline constexpr int kMaxRetries = 8;
inline constexpr double kFirstBackoffS = 0.5;

/// Seconds to wait before the request may be sent again: what Retry-After says (seconds, or a date in the three forms
/// of RFC 9110; past dates are 0), else for a 429 kFirstBackoffS doubled with each retry. nullopt: the reply is no
/// refusal that passes by itself (429, or a 503 with Retry-After). `now`: seconds since 1970.
std::optional<double> retry_after_s(const HttpReply& reply, int retries_so_far, double now);

}  // namespace plumb::investigator
