#include <algorithm>
#include <cctype>

#include "investigator/investigate.h"

namespace plumb::investigator {
namespace {

constexpr const char* kDemo = "demo.json";  // what a demo leaves in its case folder

}  // namespace

std::string go_on_command(const std::filesystem::path& case_dir, const Findings& findings, const Limits& limits) {
  const auto quoted = [](const std::string& text) {
    const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char ch) {
      return std::isalnum(ch) != 0 ||
             std::string_view("/._-+:@%").find(static_cast<char>(ch)) != std::string_view::npos;
    });
    if (plain && !text.empty()) return text;
    std::string out = "'";
    for (const char ch : text) out += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
    return out + "'";
  };
  std::string more;
  if (findings.budget == "launches") more = fmt::format(" --max-restarts {}", 2 * limits.max_restarts);
  if (findings.budget == "minutes") more = fmt::format(" --max-minutes {}", 2 * limits.max_minutes);
  if (findings.budget == "tokens") more = fmt::format(" --max-tokens {}", 2 * limits.max_tokens);
  std::error_code ignored;
  if (!std::filesystem::exists(case_dir / kDemo, ignored)) return "plumb isolate " + quoted(case_dir.string()) + more;
  if (!more.empty()) return "plumb demo" + more;
  return fmt::format("plumb demo --case {} --resume", quoted(case_dir.string()));
}

std::string summary(const Outcome& outcome, const std::string& go_on) {
  const Findings& f = outcome.findings;
  const Verdict& v = f.verdict;
  std::string out = fmt::format("verdict: {} (class {})\n", v.verdict, v.klass);
  for (const Culprit& c : v.culprits) out += fmt::format("culprit: {}, {} side, {}\n", c.switch_name, c.side, c.word);
  for (const Round& r : f.rounds)
    for (const Contrast& c : r.contrasts)
      out += fmt::format("evidence: {}: {}/{} against {}/{} launches failing, e-value {:.3g}\n", c.name, c.failed,
                         c.pairs, c.wrongly_failed, c.pairs, c.e_value);
  for (const OverBudget& o : f.over_budget)
    out += fmt::format("evidence: {}: {}/{} against {}/{} launches over, e-value {:.3g}\n", o.contrast.name,
                       o.contrast.failed, o.contrast.pairs, o.contrast.wrongly_failed, o.contrast.pairs,
                       o.contrast.e_value);
  if (f.joint && f.joint->concluded)
    for (std::size_t i = 0; i < f.joint->members.size(); ++i)
      out += fmt::format("share: {:.0f} % ({:.0f}–{:.0f} %) of the distance: {}\n", 100 * f.joint->shares[i].share,
                         100 * f.joint->shares[i].low, 100 * f.joint->shares[i].high, f.joint->names[i]);
  for (const std::string& reason : f.reasons) out += "because: " + reason + "\n";
  for (const std::string& open : v.not_covered) out += "not covered: " + open + "\n";
  out += fmt::format("launches: {} floor, {} search, {} confirmation{}; {} trials in {:.0f} s; seed {}\n",
                     v.floor_launches, v.search_launches, v.confirm_launches,
                     v.turned == 0 ? "" : fmt::format("; {} more variants asked in running processes", v.turned),
                     v.trials, outcome.history.elapsed_s, outcome.seed);
  if (!go_on.empty() && !f.budget.empty()) out += "go on with: " + go_on + "\n";
  return out;
}

}  // namespace plumb::investigator
