#include "investigator/restart_never.h"

#include <algorithm>

namespace plumb::investigator {

void state_what_no_restart_leaves_open(const Deployment& deployment, Findings& findings) {
  if (deployment.restart != "never") return;
  Verdict& v = findings.verdict;
  v.launch_failure_rate_95 = std::nullopt;
  v.not_covered.emplace_back(
      "faults that come and go with launches: the server was never restarted (restart = \"never\"), so every "
      "measurement is of one launch");
  v.not_covered.emplace_back(
      "settings that need a launch: only what a request carries was turned; to test them, start a second server with "
      "the setting changed and compare: plumb probe URL URL_B");
  if (v.verdict != "confirmed") return;
  v.verdict = "suspected";
  findings.reasons.emplace_back(
      "every contrast holds in this running server, but without a restart a fault of this one launch cannot be told "
      "from "
      "one of the setting: suspected, not confirmed");
}

Limits limits_of(const Deployment& deployment, Limits limits) {
  for (const EndpointSpec& endpoint : deployment.endpoints)
    if (endpoint.max_tokens_total > 0)
      limits.max_tokens =
          limits.max_tokens == 0 ? endpoint.max_tokens_total : std::min(limits.max_tokens, endpoint.max_tokens_total);
  return limits;
}

}  // namespace plumb::investigator
