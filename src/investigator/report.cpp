#include "investigator/report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "investigator/markdown.h"
#include "investigator/report_sections.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

std::string assumptions(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::string out = "\n## Assumptions tested\n";
  out += fmt::format(
      "- Floor: {} shared prompts with another launch of their variant; {} of {} repeated replies differ{}\n",
      counted(static_cast<std::size_t>(f.floor.launches), "launch"), f.floor.different_replies,
      f.floor.compared_replies, f.floor.identical() ? " (equal to the bit)" : "");
  Counts deployed;
  for (const std::string& cell : c.plan.cells)
    if (!probe_of(cell).value()->weak) deployed += counts_in_report(c, f.deployed, cell);
  // Once something failed the table of probes says how often; a bound over all probes together would contradict it.
  if (deployed.failures == 0 && f.verdict.trial_failure_rate_95)
    out += fmt::format("- Nothing failed as deployed, all probes together: at most {:.1f} % of trials do (95 %)\n",
                       100 * *f.verdict.trial_failure_rate_95);
  if (deployed.failures == 0 && f.verdict.launch_failure_rate_95.value_or(1) < 1)
    out += fmt::format("- A fault that shows in some launches only may still show in up to {:.0f} % of them (95 %)\n",
                       100 * *f.verdict.launch_failure_rate_95);
  out += "- Distance D of log-probabilities to the reference: not measured in this version\n";
  return out;
}

std::string open_questions(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::string out = "\n## Not tested\n";
  for (const std::string& what : f.verdict.not_covered) out += "- " + plain_markdown(what) + "\n";
  if (f.verdict.not_covered.empty()) out += "- Of the probes: nothing was left out\n";
  out +=
      "\nPlumb has no probe for prompts longer than 1,024 tokens, several requests at once, and precision that leaves "
      "answers right.\n";
  for (const SwitchSpec& s : c.plan.deployment.switches)
    if (!s.working_off) out += fmt::format("`{}` has no working off side: test it by a golden comparison.\n", s.name);
  out += "\n## Open questions\n";
  for (const std::string& q : f.open_questions) out += "- " + plain_markdown(q) + "\n";
  if (f.verdict.verdict == "confirmed")
    out +=
        "- Which layer and op? If the culprit can be set by layer, halve the layers; else compare traces with a "
        "golden.\n"
        "- Is the off side fast enough to ship meanwhile? See tok/s above; if yes turn it off, if no repair first.\n";
  else if (f.verdict.verdict == "clean")
    out += "- Do users still see the symptom? If yes: longer prompts, load, their own conversation; if no: done.\n";
  else
    out +=
        "- Does a larger budget (--max-restarts, --max-minutes) decide it? If yes: done; if no: look for noise between "
        "launches.\n";
  return out;
}

std::string relevant_files(const Reproduction& repro) {
  std::string out = "`deployment.toml`, `environment.json`, `journal.sqlite`, `report.json`, `logs/`";
  if (!repro.script.empty()) out += ", `reproduce.sh`";
  for (std::size_t i = 1; i <= repro.bodies.size(); ++i) out += fmt::format(", `prompt-{}.json`", i);
  return out + "\n";
}

std::string status_sections(const Case& c, const Reproduction& repro) {
  const Findings& f = c.outcome.findings;
  std::string out = "\n<details markdown=\"1\"><summary>Status of the investigation</summary>\n\n";
  out += "### Goal\nFind the switch or switches that break exact recall, or show that none does.\n";
  out += fmt::format("### Constraints\nAt most {} launches, {} minutes, {} tokens.\n", c.plan.limits.max_restarts,
                     c.plan.limits.max_minutes,
                     c.plan.limits.max_tokens == 0 ? "any number of" : std::to_string(c.plan.limits.max_tokens));
  out += fmt::format("### Done\n{}, {} of isolation.\n",
                     counted(static_cast<std::size_t>(c.outcome.history.starts()), "launch"),
                     counted(f.rounds.size(), "round"));
  out += "### In progress\n" + (c.ended ? "Nothing." : "The case is not finished: " + code_span(c.go_on)) + "\n";
  out += fmt::format("### Blocked\n{}\n", f.verdict.not_covered.empty() ? "Nothing." : "See “Not tested”.");
  out += "### Decisions\n";
  for (const std::string& reason : f.reasons) out += "- " + plain_markdown(reason) + "\n";
  out += "### Next steps\nSee “Open questions”.\n";
  out += "### Critical context\nProbes are synthetic; every reply is in the journal.\n";
  out += "### Relevant files\n" + relevant_files(repro);
  return out + report_trials(c) + "\n</details>\n";
}

}  // namespace

std::string verdict_json(const Verdict& v) {
  const auto number = [](const std::optional<double>& x) { return x ? Json(*x) : Json(); };
  Json culprits = Json::array();
  for (const Culprit& k : v.culprits)
    culprits.push_back({{"switch", k.switch_name}, {"side", k.side}, {"processes", k.processes}, {"word", k.word}});
  const Json j{
      {"verdict", v.verdict},
      {"culprits", culprits},
      {"class", v.klass},
      {"posterior", number(v.posterior)},
      {"posterior_flat_prior", number(v.posterior_flat_prior)},
      {"launches", {{"floor", v.floor_launches}, {"search", v.search_launches}, {"confirm", v.confirm_launches}}},
      {"trials", v.trials},
      {"bounds",
       {{"trial_failure_rate_95", number(v.trial_failure_rate_95)},
        {"launch_failure_rate_95", number(v.launch_failure_rate_95)}}},
      {"not_covered", v.not_covered}};
  return j.dump(2) + "\n";
}

std::string report_markdown(const Case& c) {
  const Findings& f = c.outcome.findings;
  const Reproduction repro = reproduction(c);
  std::string out = report_head(c, repro) + report_environment(c);
  if (f.wording) out += report_probes(c);
  for (const Round& r : f.rounds) out += report_round(c, r);
  out += assumptions(c) + open_questions(c) + status_sections(c, repro);
  if (out.size() > kMaxReportBytes) {
    const std::string note = "\n…\n\nCut at 50,000 characters; everything is in journal.sqlite.\n</details>\n";
    std::size_t cut = kMaxReportBytes - note.size();
    while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xC0) == 0x80) --cut;  // not inside a character
    out = out.substr(0, cut) + note;
  }
  return out;
}

Result<void> write_atomically(const std::filesystem::path& file, const std::string& text, bool executable) {
  return write_file_durably(file, text, executable ? 0755 : 0644);
}

Result<void> write_reports(const std::filesystem::path& case_dir, const Case& c) {
  const Reproduction repro = reproduction(c);
  std::error_code ignored;
  for (std::size_t i = 1; i <= kMaxReproductionRequests; ++i)
    if (i > repro.bodies.size()) std::filesystem::remove(case_dir / fmt::format("prompt-{}.json", i), ignored);
  if (repro.script.empty()) std::filesystem::remove(case_dir / "reproduce.sh", ignored);
  for (std::size_t i = 0; i < repro.bodies.size(); ++i)
    if (auto done = write_atomically(case_dir / fmt::format("prompt-{}.json", i + 1), repro.bodies[i]); !done)
      return done;
  if (!repro.script.empty())
    if (auto done = write_atomically(case_dir / "reproduce.sh", repro.script, true); !done) return done;
  if (auto done = write_atomically(case_dir / "report.md", report_markdown(c)); !done) return done;
  return write_atomically(case_dir / "report.json", verdict_json(c.outcome.findings.verdict));
}

}  // namespace plumb::investigator
