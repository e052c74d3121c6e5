#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "investigator/investigate.h"
#include "investigator/live_page.h"

namespace CLI {
class App;
}

namespace plumb::cli {

/// How a verdict is shown besides what is printed.
struct ReportOptions {
  std::string listen;  // [HOST:]PORT of the live page; empty: none
  std::string junit;   // file; empty: none
};

/// Adds --listen.
void add_listen(CLI::App& command, ReportOptions& options);
/// Adds --junit.
void add_junit(CLI::App& command, ReportOptions& options);

/// Adds --redact.
void add_redact(CLI::App& command, bool& redact);

/// Starts the live page and says on stderr where it is; null when none is asked for. Errors: no address, or in use.
Result<std::unique_ptr<investigator::LivePage>> start_live_page(const ReportOptions& options);

/// Writes the JUnit file of a case that has a verdict, if one is asked for.
Result<void> write_junit(const ReportOptions& options, const std::filesystem::path& case_dir,
                         const investigator::Limits& limits);

}  // namespace plumb::cli
