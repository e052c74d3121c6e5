#include "investigator/report.h"

#include <fmt/format.h>

#include "base/durable_file.h"

namespace plumb::investigator {

Result<void> write_atomically(const std::filesystem::path& file, const std::string& text, bool executable) {
  return write_file_durably(file, text, executable ? 0755 : 0644);
}

Result<void> write_reports(const std::filesystem::path& case_dir, const Case& c) {
  const Report report = make_report(c);
  const Reproduction& repro = report.repro;
  std::error_code ignored;
  for (std::size_t i = 1; i <= kMaxReproductionRequests; ++i)
    if (i > repro.bodies.size()) std::filesystem::remove(case_dir / fmt::format("prompt-{}.json", i), ignored);
  if (repro.script.empty()) std::filesystem::remove(case_dir / "reproduce.sh", ignored);
  for (std::size_t i = 0; i < repro.bodies.size(); ++i)
    if (auto done = write_atomically(case_dir / fmt::format("prompt-{}.json", i + 1), repro.bodies[i]); !done)
      return done;
  if (!repro.script.empty())
    if (auto done = write_atomically(case_dir / "reproduce.sh", repro.script, true); !done) return done;
  if (auto done = write_atomically(case_dir / "report.md", report_markdown(report)); !done) return done;
  if (auto done = write_atomically(case_dir / "report.html", report_html(report)); !done) return done;
  return write_atomically(case_dir / "report.json", report_json(c, report));
}

}  // namespace plumb::investigator
