#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "investigator/investigate.h"
#include "investigator/report_model.h"

namespace plumb::investigator {

/// The verdict with exactly the keys of the command line's contract.
std::string verdict_json(const Verdict& verdict);

/// report.json: the same keys, and `report` with the numbers the other forms show (docs/report.md).
std::string report_json(const Case& c, const Report& report);

/// report.md: what an engineer would paste into an issue; at most kMaxReportBytes.
std::string report_markdown(const Report& report);
inline constexpr std::size_t kMaxReportBytes = 50'000;

/// report.html: one page without script or further file, at most kMaxHtmlBytes.
std::string report_html(const Report& report);
inline constexpr std::size_t kMaxHtmlBytes = 2'000'000;

/// The page around such a report: `head` and `banner` are markup of ours.
std::string html_page(const Report& report, const std::string& head, const std::string& banner);

/// JUnit XML for a CI: a suite a variant with a test case a probe, which fails when a trial of it did, and a suite of
/// the switches, in which each culprit is a failure and what was not tested is skipped. `verdict` is a test case of its
/// own: an error unless clean.
std::string report_junit(const Case& c);

/// Writes a file so that a crash leaves the old or the new one, never half.
Result<void> write_atomically(const std::filesystem::path& file, const std::string& text, bool executable = false);

/// All files of a report into the case folder.
Result<void> write_reports(const std::filesystem::path& case_dir, const Case& c);

}  // namespace plumb::investigator
