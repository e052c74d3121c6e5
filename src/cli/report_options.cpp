#include "cli/report_options.h"

#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "investigator/report.h"

namespace plumb::cli {

void add_listen(CLI::App& command, ReportOptions& options) {
  command.add_option("--listen", options.listen,
                     "[HOST:]PORT of a page that shows the running investigation; without HOST on 127.0.0.1");
}

void add_junit(CLI::App& command, ReportOptions& options) {
  command.add_option("--junit", options.junit, "write a JUnit file: each probe of each variant, each switch");
}

void add_redact(CLI::App& command, bool& redact) {
  command.add_flag("--redact", redact,
                   "show prompts and replies by length and hash alone, and record them so from now on");
}

Result<std::unique_ptr<investigator::LivePage>> start_live_page(const ReportOptions& options) {
  if (options.listen.empty()) return std::unique_ptr<investigator::LivePage>();
  const auto address = investigator::parse_live_address(options.listen);
  if (!address) return tl::unexpected(address.error());
  auto page = investigator::LivePage::start(*address);
  if (!page) return page;
  const bool v6 = address->host.find(':') != std::string::npos;
  fmt::print(stderr, "live page: http://{}{}{}:{}/{}\n", v6 ? "[" : "", address->host, v6 ? "]" : "", (*page)->port(),
             address->is_loopback() ? "" : " (whoever reaches this address can read it)");
  return page;
}

Result<void> write_junit(const ReportOptions& options, const std::filesystem::path& case_dir,
                         const investigator::Limits& limits) {
  if (options.junit.empty()) return {};
  const auto c = investigator::read_case(case_dir, limits);
  if (!c) return tl::unexpected(c.error());
  return investigator::write_atomically(options.junit, investigator::report_junit(*c));
}

}  // namespace plumb::cli
