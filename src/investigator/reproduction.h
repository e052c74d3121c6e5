#pragma once

#include <string>
#include <vector>

#include "investigator/investigate.h"

namespace plumb::investigator {

/// A script that shows the symptom with curl alone, and the bodies it sends, in order (prompt-1.json, ...): those of
/// one failing trial, whose code comes from the case's seed. Empty when nothing failed, script and
/// bodies also where the prompts are withheld. Exit codes of the script: 0 the
/// expected answer came, 1 the symptom shows, 3 no reproduction: usage, not reachable, or the server refused.
struct Reproduction {
  std::string script;
  std::vector<std::string> bodies;
  std::string expected;
  std::string got;    // the reply in the case
  std::string probe;  // its cell, and the step in it
  ItemId item;
  Variant variant;
  std::string api;  // "chat/completions" or "completions"
};
Reproduction reproduction(const Case& c);

/// Each process of the deployment as it is launched with these sides, one a line, absolute paths shortened.
std::string launch_lines(const Deployment& deployment, const Variant& variant);

/// The text with each absolute path replaced by "<path>/" and its last part: paths name users and machines, the last
/// part is enough to recognise a file. Relative paths and URLs stay.
std::string without_paths(const std::string& text);

inline constexpr std::size_t kMaxReproductionRequests = 8;

}  // namespace plumb::investigator
