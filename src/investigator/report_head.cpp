#include <algorithm>

#include <fmt/ranges.h>

#include "investigator/markdown.h"
#include "investigator/report_sections.h"

namespace plumb::investigator {
namespace {

std::string name_of(const Case& c) {
  return c.plan.deployment.name.empty() ? "the deployment" : plain_markdown(c.plan.deployment.name);
}

// The cell that the case is about: the first round's, else what fails most as deployed; "" when nothing fails.
std::string main_cell(const Case& c) {
  const Findings& f = c.outcome.findings;
  if (!f.rounds.empty()) return f.rounds.front().cell;
  std::string chosen;
  int most = 0;
  for (const std::string& cell : c.plan.cells)
    if (const Counts counts = counts_in_report(c, f.deployed, cell);
        !probe_of(cell).value()->weak && counts.failures > most) {
      most = counts.failures;
      chosen = cell;
    }
  return chosen;
}

std::string culprit_names(const Verdict& v) {
  std::vector<std::string> names;
  for (const Culprit& k : v.culprits) names.push_back(fmt::format("`{}` {}", k.switch_name, k.side));
  return fmt::format("{}", fmt::join(names, v.klass == "and" ? " together with " : " and "));
}

// "prefix_cache on breaks recall in later turns"
std::string title(const Case& c) {
  const Verdict& v = c.outcome.findings.verdict;
  const std::string cell = main_cell(c);
  const std::string recall(cell.empty() ? "recall" : probe_of(cell).value()->recall);
  if (!c.ended) return fmt::format("Recall of {}: the investigation is not finished", name_of(c));
  if (v.verdict == "clean") return fmt::format("No loss of recall found in {}", name_of(c));
  if (v.verdict == "unexplained") return fmt::format("Every variant of {} breaks {}", name_of(c), recall);
  if (v.culprits.empty()) return fmt::format("Recall of {}: {}", name_of(c), v.verdict);
  const bool each = v.culprits.size() > 1 && v.klass != "and";
  if (v.verdict == "confirmed")
    return fmt::format("{} {} {}", culprit_names(v),
                       each                    ? "each break"
                       : v.culprits.size() > 1 ? "break"
                                               : "breaks",
                       recall);
  return fmt::format("{} {} suspected to break {}", culprit_names(v), v.culprits.size() > 1 ? "are" : "is", recall);
}

// What answered the prompt of the reproduction right: "the cured variant"; "" for none.
std::string who_is_right(const Case& c, const Reproduction& repro) {
  for (const Column& k : columns(c)) {
    if (k.variant == repro.variant) continue;
    for (const LaunchRecord& l : c.outcome.history.launches)
      if (l.variant == k.variant)
        for (const TrialRecord& t : l.trials)
          if (t.item == repro.item && t.grade == Grade::right)
            return k.name == "as deployed" ? "As deployed" : "The " + k.name + " variant";
  }
  return {};
}

std::string in_plain_words(const Case& c, const Reproduction& repro) {
  const Findings& f = c.outcome.findings;
  const std::string cell = main_cell(c);
  if (cell.empty() && f.verdict.verdict == "clean") return "Every code that was asked for came back right.\n\n";
  std::string out;
  if (!cell.empty()) out += std::string(probe_of(cell).value()->notices) + "\n\n";
  if (repro.script.empty()) return out;
  out += fmt::format("For example (probe `{}`): expected {}, got {}.", repro.probe, code_span(repro.expected),
                     code_span(repro.got));
  if (const std::string right = who_is_right(c, repro); !right.empty())
    out += fmt::format(" {} answers the same prompt right.", right);
  return out + "\n\n";
}

std::string how_often(const Case& c) {
  const std::string cell = main_cell(c);
  std::vector<std::string> parts;
  for (const Column& k : columns(c)) {
    Counts counts;
    if (!cell.empty()) {
      counts = counts_in_report(c, k.variant, cell);
    } else {
      for (const std::string& each : c.plan.cells)
        if (!probe_of(each).value()->weak) counts += counts_in_report(c, k.variant, each);
    }
    parts.push_back(fmt::format("{} {}", k.name, rate(counts)));
  }
  return fmt::format("failing trials of {}: {}", cell.empty() ? "all probes" : "probe `" + cell + "`",
                     fmt::join(parts, ", "));
}

std::string culprit_text(const Verdict& v) {
  std::vector<std::string> names;
  for (const Culprit& k : v.culprits) names.push_back(fmt::format("`{}` {} ({})", k.switch_name, k.side, k.word));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, v.klass == "and" ? " together with " : ", "));
}

std::string change_our_mind(const Verdict& v) {
  if (v.verdict == "clean") return "one failing trial in a new launch, or a probe longer than those asked";
  if (v.verdict == "confirmed")
    return "a launch of the cured variant that fails, or one with the culprit alone that passes";
  if (v.verdict == "unexplained") return "any variant that passes the failing probe";
  return "more launches: see the reasons and open questions below";
}

std::string footnote(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::vector<std::string> notes{"Intervals in parentheses: 95 %, exact."};
  if (f.verdict.klass == "or" && f.verdict.culprits.size() == 1) notes.push_back("Class or: this switch suffices.");
  if (f.verdict.klass == "or" && f.verdict.culprits.size() > 1) notes.push_back("Class or: each of them suffices.");
  if (f.verdict.klass == "and") notes.push_back("Class and: only all of them together do it.");
  if (f.verdict.klass == "base") notes.push_back("Class base: under no switch.");
  if (f.verdict.posterior)
    notes.push_back(
        "Posterior: the probability, after all launches, that exactly this set of switches is to blame; flat prior: "
        "when every set is taken to be equally likely beforehand.");
  if (std::any_of(f.rounds.begin(), f.rounds.end(), [](const Round& r) { return !r.contrasts.empty(); }))
    notes.push_back("E-value: how strongly launches speak against chance; 1 says nothing, 100 ends the test.");
  notes.push_back("Floor: what differs between launches when nothing was changed.");
  return fmt::format("\n<sub>{}</sub>\n", fmt::join(notes, " "));
}

}  // namespace

std::string report_head(const Case& c, const Reproduction& repro) {
  const Findings& f = c.outcome.findings;
  const Verdict& v = f.verdict;
  std::string out = fmt::format("# {}\n\n", title(c)) + in_plain_words(c, repro);
  out += fmt::format("- **How often**: {}\n", how_often(c));
  out += fmt::format("- **Culprits**: {}\n", culprit_text(v));
  out += fmt::format("- **Verdict**: {}, class {}{}\n", v.verdict, v.klass,
                     v.posterior ? fmt::format(", posterior {:.4f}; {:.4f} under a flat prior", *v.posterior,
                                               v.posterior_flat_prior.value_or(0))
                                 : "");
  out += fmt::format("- **Launches**: {} floor, {} search, {} confirmation; {} in {:.0f} s\n", v.floor_launches,
                     v.search_launches, v.confirm_launches, counted(static_cast<std::size_t>(v.trials), "trial"),
                     c.outcome.history.elapsed_s);
  out += fmt::format("- **Why**: {}\n", f.reasons.empty() ? "–" : plain_markdown(f.reasons.back()));
  if (!c.go_on.empty()) out += fmt::format("- **Go on** with {}\n", code_span(c.go_on));
  out += fmt::format("- **What would change our mind**: {}\n", change_our_mind(v));
  if (!repro.script.empty())
    out += fmt::format(
        "- **Reproduce** without plumb: `./reproduce.sh http://HOST:PORT` in the case folder sends prompt-1.json to "
        "prompt-{}.json with curl; the last answer should be {}\n",
        repro.bodies.size(), code_span(repro.expected));
  return out + footnote(c);
}

std::string report_environment(const Case& c) {
  const Findings& f = c.outcome.findings;
  const Environment& e = c.environment;
  const auto line = [](const char* what, const std::string& text) {
    return text.empty() ? std::string() : fmt::format("- {}: {}\n", what, plain_markdown(text));
  };
  std::string out = "\n## Environment\n\n";
  out += line("Date", e.date) + line("Processor", e.cpu) + line("System", e.os);
  out += line("Plumb", e.plumb + (e.commit.empty() ? "" : ", commit " + e.commit));
  if (!e.model.empty())
    out += fmt::format("- Model: {}{}\n", code_span(e.model),
                       e.model_hash.empty() ? "" : ", hash " + code_span(e.model_hash));
  out += fmt::format("- Case seed {}, wording {}\n", c.plan.seed,
                     f.wording ? wording_name(*f.wording) : "none understood");
  out += fmt::format("\nLaunch lines as deployed:\n\n```\n{}```\n\n", launch_lines(c.plan.deployment, f.deployed));
  out += "| switch | as deployed | reference |\n|---|---|---|\n";
  for (std::size_t i = 0; i < f.deployed.size(); ++i)
    out += fmt::format("| {} | {} | {} |\n", c.plan.deployment.switches[i].name, f.deployed[i] ? "on" : "off",
                       f.reference[i] ? "on" : "off");
  out += "\nDeclared only: whether a side really ran was not measured.\n";
  return out;
}

}  // namespace plumb::investigator
