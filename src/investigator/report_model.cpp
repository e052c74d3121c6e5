#include "investigator/report_model.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "investigator/report_redaction.h"

namespace plumb::investigator {
namespace {

Blocks assumptions(const Case& c) {
  const Findings& f = c.outcome.findings;
  Items items;
  items.lines.push_back(
      {text(fmt::format("Floor: {} shared prompts with another launch of their variant; {} of {} repeated replies "
                        "differ{}",
                        counted(static_cast<std::size_t>(f.floor.launches), "launch"), f.floor.different_replies,
                        f.floor.compared_replies, f.floor.identical() ? " (equal to the bit)" : ""))});
  Counts deployed;
  for (const ProbeRow& row : probe_rows(c))
    if (!row.weak) deployed += row.counts.front();
  // Once something failed the table of probes says how often; a bound over all probes together would contradict it.
  if (deployed.failures == 0 && f.verdict.trial_failure_rate_95)
    items.lines.push_back(
        {text(fmt::format("Nothing failed as deployed, all probes together: at most {:.1f} % of trials do (95 %)",
                          100 * *f.verdict.trial_failure_rate_95))});
  if (deployed.failures == 0 && f.verdict.launch_failure_rate_95.value_or(1) < 1)
    items.lines.push_back(
        {text(fmt::format("A fault that shows in some launches only may still show in up to {:.0f} % of them (95 %)",
                          100 * *f.verdict.launch_failure_rate_95))});
  items.lines.push_back(
      {text(f.distance.measured ? "Distance D of log-probabilities to the reference: measured, see above"
                                : "Distance D of log-probabilities to the reference: not measured")});
  return {Heading{2, {text("Assumptions tested")}}, std::move(items)};
}

Line unswitchable(const Case& c, const Unswitchable& u) {
  Line line{code(c.plan.deployment.switches[u.index].name)};
  if (u.alone)
    line.push_back(
        text(" could not be turned off, so that no launch can clear it: test it by a golden comparison, or "
             "give it an off side that starts (apply = \"patch\"). It said: "));
  else if (!u.with.empty())
    line.push_back(
        text(fmt::format(" does not start at its off side together with {} at theirs: the reference has it "
                         "as deployed. It said: ",
                         fmt::join(u.with, ", "))));
  else
    line.push_back(
        text(" stays as deployed in the reference: others need it, or with more off sides nothing starts. "));
  if (!u.message.empty()) line.push_back(foreign(u.message));
  return line;
}

Blocks not_tested(const Case& c) {
  Items items;
  for (const Unswitchable& u : c.outcome.findings.unswitchable) items.lines.push_back(unswitchable(c, u));
  for (const std::string& what : c.outcome.findings.verdict.not_covered) items.lines.push_back({foreign(what)});
  if (items.lines.empty()) items.lines.push_back({text("Of the probes: nothing was left out")});
  Blocks out{Heading{2, {text("Not tested")}}, std::move(items),
             Paragraph{{text("Plumb has no probe for prompts longer than 1,024 tokens, and several requests at "
                             "once.")}}};
  if (!c.outcome.findings.distance.measured)
    out.push_back(Paragraph{{text("Precision that leaves answers right: log-probabilities were not measured.")}});
  for (const SwitchSpec& s : c.plan.deployment.switches)
    if (!s.working_off)
      out.push_back(Paragraph{{code(s.name), text(" has no working off side: test it by a golden comparison.")}});
  return out;
}

Blocks open_questions(const Case& c) {
  const Findings& f = c.outcome.findings;
  Items items;
  for (const std::string& q : f.open_questions) items.lines.push_back({foreign(q)});
  if (!f.over_budget.empty()) {
    items.lines.push_back(
        {text("Which layer and op? Compare traces with a golden; or is the declared shift too small? "
              "Then measure the honest side and declare it anew.")});
  } else if (f.verdict.verdict == "joint") {
    items.lines.push_back(
        {text("Which differences are worth their speed? Turn off those with the largest shares until "
              "the probes pass.")});
  } else if (f.verdict.verdict == "confirmed") {
    items.lines.push_back(
        {text("Which layer and op? If the culprit can be set by layer, halve the layers; else compare traces with a "
              "golden.")});
    items.lines.push_back(
        {text("Is the off side fast enough to ship meanwhile? See tok/s above; if yes turn it off, if no repair "
              "first.")});
  } else if (f.verdict.verdict == "clean") {
    items.lines.push_back(
        {text("Do users still see the symptom? If yes: longer prompts, load, their own conversation; if no: done.")});
  } else {
    items.lines.push_back(
        {text("Does a larger budget (--max-restarts, --max-minutes) decide it? If yes: done; if no: look for noise "
              "between launches.")});
  }
  return {Heading{2, {text("Open questions")}}, std::move(items)};
}

Line relevant_files(const Reproduction& repro) {
  Line line;
  const auto add = [&](std::string file) {
    if (!line.empty()) line.push_back(text(", "));
    line.push_back(code(std::move(file)));
  };
  for (const char* file :
       {"deployment.toml", "environment.json", "journal.sqlite", "report.json", "report.html", "logs/"})
    add(file);
  if (!repro.script.empty()) add("reproduce.sh");
  for (std::size_t i = 1; i <= repro.bodies.size(); ++i) add(fmt::format("prompt-{}.json", i));
  return line;
}

Blocks status_sections(const Case& c, const Reproduction& repro) {
  const Findings& f = c.outcome.findings;
  Blocks out;
  const auto add = [&](const char* title, Line line) {
    out.push_back(Heading{3, {text(title)}});
    out.push_back(Paragraph{std::move(line)});
  };
  add("Goal", {text("Find the switch or switches that break exact recall, or show that none does.")});
  add("Constraints",
      {text(fmt::format("At most {} launches, {} minutes, {} tokens.", c.plan.limits.max_restarts,
                        c.plan.limits.max_minutes,
                        c.plan.limits.max_tokens == 0 ? "any number of" : std::to_string(c.plan.limits.max_tokens)))});
  add("Done",
      {text(fmt::format("{}, {} of isolation.", counted(static_cast<std::size_t>(c.outcome.history.starts()), "launch"),
                        counted(f.rounds.size(), "round")))});
  add("In progress", c.ended           ? Line{text("Nothing.")}
                     : c.go_on.empty() ? Line{text("The investigation runs.")}
                                       : Line{text("The case is not finished: "), code(c.go_on)});
  add("Blocked", {text(f.verdict.not_covered.empty() ? "Nothing." : "See “Not tested”.")});
  out.push_back(Heading{3, {text("Decisions")}});
  Items reasons;
  for (const std::string& reason : f.reasons) reasons.lines.push_back({foreign(reason)});
  if (!reasons.lines.empty()) out.push_back(std::move(reasons));
  add("Next steps", {text("See “Open questions”.")});
  add("Critical context", {text("Probes are synthetic; every reply is in the journal.")});
  add("Relevant files", relevant_files(repro));
  append(out, report_trials(c));
  return out;
}

}  // namespace

Report make_report(const Case& c) {
  Report r;
  r.repro = reproduction(c);
  r.title = report_title(c);
  r.head = report_head(c, r.repro);
  r.verdict = c.ended ? c.outcome.findings.verdict.verdict : "not finished";
  r.environment = report_environment(c);
  if (c.outcome.findings.wording) append(r.body, report_probes(c));
  append(r.body, report_conversation(c));
  for (const Round& round : c.outcome.findings.rounds) append(r.body, report_round(c, round));
  append(r.body, report_distance(c));
  append(r.body, assumptions(c));
  append(r.body, not_tested(c));
  append(r.body, open_questions(c));
  r.status = status_sections(c, r.repro);
  r.recall = heat_map(c);
  for (const Round& round : c.outcome.findings.rounds)
    if (auto trace = posterior_trace(c, round); !trace.points.empty()) r.suspicion.push_back(std::move(trace));
  r.launches = launch_entries(c);
  return r;
}

}  // namespace plumb::investigator
