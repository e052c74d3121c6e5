#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "investigator/deployment.h"
#include "investigator/investigation.h"

namespace plumb::investigator {

/// What a key of the deployment file means; "" for one that has no explanation (a test holds that there is none).
/// `key` as in FileNote.
std::string_view meaning_of(std::string_view key);

/// The deployment file with what plumb understands under each line: for people who want to know why. Comments and blank
/// lines are left out.
std::string explain_file(std::string_view toml, const std::vector<FileNote>& notes);

/// What is started, how plumb knows that it is ready and gone, whom it asks, and what turning each switch does: argv as
/// deployed and of the reference, marks as they are written. Names every environment variable that is not set.
std::string explain_launches(const Deployment& deployment);

/// What `plumb investigate --plan` prints: the file explained, the launches, and what describe_plan says of probes,
/// budget and number of launches. Launches nothing and asks nobody.
Result<std::string> explain_plan(const Deployment& deployment, const Limits& limits, std::string_view toml,
                                 const std::vector<FileNote>& notes);
/// The document of plan_json with that of lint_json in it.
Result<std::string> explained_plan_json(const Deployment& deployment, const Limits& limits,
                                        const std::vector<FileNote>& notes);

/// The explanations for scripts: {"lint": [{line, key, means}], "processes": […], "endpoints": […], "applied": […]}.
nlohmann::ordered_json lint_json(const Deployment& deployment, const std::vector<FileNote>& notes);

}  // namespace plumb::investigator
