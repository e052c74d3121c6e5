#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "investigator/deployment.h"
#include "investigator/marks.h"

namespace plumb::investigator {

/// What an error of a check points at: "process server", "endpoint 0", "switch a" or "" for the file as a whole.
using Locate = std::function<std::string(const std::string& item)>;

/// Everything about a deployment that one item alone does not show: names, references, cycles, ports, launchability as
/// deployed. `locate` gives the "file:line: " of an item for the message.
Result<void> check_deployment(const Deployment& deployment, const Locate& locate);

/// Letters, digits, '_', '-' and '.', 1 to 100 of them: what names of processes, switches and sides are made of.
bool is_name(std::string_view name);

/// Whether the text is a list of CPU numbers and ascending ranges, as "0-31,64".
bool is_cpu_list(std::string_view text);

/// Whether an endpoint's URL, which may hold {port:NAME}, is "http://HOST[:PORT][/PATH]" without /v1; the error names
/// it.
Result<void> check_url(const std::string& url);

/// Whether the URL's host is this machine by its name: 127.0.0.1, localhost or [::1].
bool is_local_url(const std::string& url);

/// The port of "http://HOST[:PORT][/PATH]", 80 when it names none; an error when it is not of that form.
Result<int> port_of_url(const std::string& url);

/// Whether the name matches a glob of literal characters, `*` and `?`.
bool matches_glob(std::string_view glob, std::string_view name);

/// Whether the switch acts on the process.
bool acts_on(const SwitchSpec& spec, const std::string& process);

/// The reason why plumb does not take the pattern as a `ready.log` expression, or "". POSIX extended syntax without
/// repetition counts and back-references, so that matching hostile logs stays linear in the length of a line.
std::string refuse_log_regex(const std::string& pattern);

}  // namespace plumb::investigator
