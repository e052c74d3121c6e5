#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "investigator/investigate.h"

namespace plumb::investigator {

/// report.json: the verdict with exactly the keys of the command line's contract.
std::string verdict_json(const Verdict& verdict);

/// report.md: what an engineer would paste into an issue; at most kMaxReportBytes.
std::string report_markdown(const Case& c);
inline constexpr std::size_t kMaxReportBytes = 50'000;

/// Writes a file so that a crash leaves the old or the new one, never half.
Result<void> write_atomically(const std::filesystem::path& file, const std::string& text, bool executable = false);

/// All files of a report into the case folder.
Result<void> write_reports(const std::filesystem::path& case_dir, const Case& c);

}  // namespace plumb::investigator
