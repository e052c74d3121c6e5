#include "investigator/retry.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <time.h>

namespace plumb::investigator {
namespace {

std::optional<double> seconds_of(const std::string& text, double now) {
  double seconds = 0;
  const char* const end = text.data() + text.size();
  if (const auto [rest, bad] = std::from_chars(text.data(), end, seconds); bad == std::errc() && rest == end)
    return seconds >= 0 && std::isfinite(seconds) ? std::optional(seconds) : std::nullopt;
  for (const char* form : {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"}) {
    tm date{};
    const char* const parsed = strptime(text.c_str(), form, &date);
    if (parsed == nullptr || *parsed != '\0') continue;
    return std::max(0.0, static_cast<double>(timegm(&date)) - now);
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> retry_after_s(const HttpReply& reply, int retries_so_far, double now) {
  if (reply.status != 429 && reply.status != 503) return std::nullopt;
  const auto stated = reply.headers.find("retry-after");
  if (stated != reply.headers.end())
    if (const auto seconds = seconds_of(stated->second, now)) return seconds;
  if (reply.status == 503) return std::nullopt;
  return kFirstBackoffS * std::exp2(retries_so_far);
}

}  // namespace plumb::investigator
