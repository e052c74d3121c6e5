#include <algorithm>

#include <fmt/ranges.h>

#include "investigator/report_model.h"

namespace plumb::investigator {
namespace {

std::string name_of(const Case& c) {
  return c.plan.deployment.name.empty() ? "the deployment" : c.plan.deployment.name;
}

// `prefix_cache` on and `attention.split_k` on
Line culprit_names(const Verdict& v) {
  Line line;
  for (const Culprit& k : v.culprits) {
    if (!line.empty()) line.push_back(text(v.klass == "and" ? " together with " : " and "));
    line.push_back(code(k.switch_name));
    line.push_back(text(" " + k.side));
  }
  return line;
}

// Nothing was lost, but some switches move log-probabilities more than they may.
bool only_over_budget(const Verdict& v) {
  return !v.culprits.empty() &&
         std::all_of(v.culprits.begin(), v.culprits.end(), [](const Culprit& k) { return k.word == "over budget"; });
}

std::string verdict_in_words(const Case& c) {
  const Verdict& v = c.outcome.findings.verdict;
  if (!c.ended) return "Not finished: nothing is decided yet.";
  if (only_over_budget(v))
    return "Every code that was asked for came back right, but log-probabilities are farther from the reference than "
           "declared.";
  const char* culprit = v.culprits.size() == 1 ? "the culprit" : "the culprits";
  if (v.verdict == "confirmed")
    return fmt::format("Confirmed on {}: with {} at the other side the failure is gone, and with {} it is back.",
                       counted(static_cast<std::size_t>(v.confirm_launches), "fresh launch"), culprit, culprit);
  if (v.verdict == "suspected") return "Suspected, not confirmed: the launches so far point there, but are too few.";
  if (v.verdict == "unexplained") return "No switch explains it: every variant that was launched fails.";
  if (v.verdict == "joint") return "No single culprit: differences of several switches add up.";
  if (v.verdict == "inconclusive") return "No verdict: what was measured does not decide it.";
  return {};
}

// The verdict, what a user notices, one pair of expected and got.
Blocks in_plain_words(const Case& c, const Reproduction& repro) {
  const Findings& f = c.outcome.findings;
  const std::string cell = main_cell(c);
  if (cell.empty() && f.verdict.verdict == "clean")
    return {Paragraph{{text("Every code that was asked for came back right.")}}};
  std::string words = verdict_in_words(c);
  if (!cell.empty()) words += (words.empty() ? "" : " ") + std::string(probe_of(cell).value()->notices);
  Blocks out;
  if (!words.empty()) out.push_back(Paragraph{{text(words)}});
  if (repro.expected.empty()) return out;
  Line example{text("For example (probe "),
               code(repro.probe),
               text("): expected "),
               code(repro.expected),
               text(", got "),
               code(repro.got),
               text(".")};
  if (const auto right = who_is_right(c, repro))
    example.push_back(
        text(fmt::format(" {} answers the same prompt right.",
                         right->name == "as deployed" ? "As deployed" : "The " + right->name + " variant")));
  out.push_back(Paragraph{std::move(example)});
  return out;
}

std::string how_often(const Case& c) {
  const std::string cell = main_cell(c);
  const auto cols = columns(c);
  const auto counts = main_counts(c);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < cols.size(); ++i) parts.push_back(fmt::format("{} {}", cols[i].name, rate(counts[i])));
  return fmt::format("failing trials of {}: {}", cell.empty() ? "all probes" : "probe " + cell, fmt::join(parts, ", "));
}

Line culprit_item(const Verdict& v) {
  Line line{strong("Culprits"), text(": ")};
  if (v.culprits.empty()) line.push_back(text("none"));
  for (std::size_t i = 0; i < v.culprits.size(); ++i) {
    if (i > 0) line.push_back(text(v.klass == "and" ? " together with " : ", "));
    line.push_back(code(v.culprits[i].switch_name));
    line.push_back(text(fmt::format(" {} ({})", v.culprits[i].side, v.culprits[i].word)));
  }
  return line;
}

std::string change_our_mind(const Verdict& v) {
  if (v.verdict == "clean") return "one failing trial in a new launch, or a probe longer than those asked";
  if (only_over_budget(v)) return "launches with the culprit alone that are within its declared shift";
  if (v.verdict == "joint") return "one switch alone that harms, or failing launches that are nearer than passing ones";
  if (v.verdict == "confirmed")
    return "a launch of the cured variant that fails, or one with the culprit alone that passes";
  if (v.verdict == "unexplained") return "any variant that passes the failing probe";
  return "more launches: see the reasons and open questions below";
}

std::string footnote(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::vector<std::string> notes{"Intervals in parentheses: 95 %, exact."};
  const bool over = only_over_budget(f.verdict);
  if (f.verdict.klass == "or" && f.verdict.culprits.size() == 1 && !over)
    notes.push_back("Class or: this switch suffices.");
  if (f.verdict.klass == "or" && f.verdict.culprits.size() > 1 && !over)
    notes.push_back("Class or: each of them suffices.");
  if (f.verdict.klass == "and") notes.push_back("Class and: only all of them together do it.");
  if (f.verdict.klass == "base") notes.push_back("Class base: under no switch.");
  if (f.verdict.posterior)
    notes.push_back(
        "Posterior: the probability, after all launches, that exactly this set of switches is to blame; flat prior: "
        "when every set is taken to be equally likely beforehand.");
  if (std::any_of(f.rounds.begin(), f.rounds.end(), [](const Round& r) { return !r.contrasts.empty(); }))
    notes.push_back("E-value: how strongly launches speak against chance; 1 says nothing, 100 ends the test.");
  notes.push_back("Floor: what differs between launches when nothing was changed.");
  return fmt::format("{}", fmt::join(notes, " "));
}

std::string turned_words(int turned) {
  return turned == 0 ? "" : fmt::format(", {} more variants asked in processes that ran already", turned);
}

}  // namespace

Line report_title(const Case& c) {
  const Verdict& v = c.outcome.findings.verdict;
  const std::string cell = main_cell(c);
  const std::string recall(cell.empty() ? "recall" : probe_of(cell).value()->recall);
  const Run name = foreign(name_of(c));
  if (!c.ended) return {text("Recall of "), name, text(": the investigation is not finished")};
  if (v.verdict == "clean") return {text("No loss of recall found in "), name};
  if (v.verdict == "unexplained") return {text("Every variant of "), name, text(" breaks " + recall)};
  if (v.verdict == "joint") return {text("Many small differences together break " + recall + " of "), name};
  if (v.culprits.empty()) return {text("Recall of "), name, text(": " + v.verdict)};
  Line line = culprit_names(v);
  const bool many = v.culprits.size() > 1;
  if (only_over_budget(v))
    line.push_back(
        text(many ? " move log-probabilities beyond their budgets" : " moves log-probabilities beyond its budget"));
  else if (v.verdict == "confirmed")
    line.push_back(text(fmt::format(" {} {}", !many ? "breaks" : v.klass == "and" ? "break" : "each break", recall)));
  else
    line.push_back(text(fmt::format(" {} suspected to break {}", many ? "are" : "is", recall)));
  return line;
}

Blocks report_head(const Case& c, const Reproduction& repro) {
  const Findings& f = c.outcome.findings;
  const Verdict& v = f.verdict;
  Blocks out = in_plain_words(c, repro);
  Items items;
  items.lines.push_back({strong("How often"), text(": " + how_often(c))});
  if (c.ended) items.lines.push_back(culprit_item(v));
  items.lines.push_back(
      {strong("Verdict"),
       text(!c.ended ? ": none yet"
                     : fmt::format(": {}, class {}{}", v.verdict, v.klass,
                                   v.posterior ? fmt::format(", posterior {:.4f}; {:.4f} under a flat prior",
                                                             *v.posterior, v.posterior_flat_prior.value_or(0))
                                               : ""))});
  items.lines.push_back(
      {strong("Launches"),
       text(fmt::format(": {} floor, {} search, {} confirmation{}; {} in {:.0f} s", v.floor_launches, v.search_launches,
                        v.confirm_launches, turned_words(v.turned),
                        counted(static_cast<std::size_t>(v.trials), "trial"), c.outcome.history.elapsed_s))});
  items.lines.push_back({strong("Why"), text(": "), f.reasons.empty() ? text("–") : foreign(f.reasons.back())});
  if (!c.go_on.empty()) items.lines.push_back({strong("Go on"), text(" with "), code(c.go_on)});
  if (c.ended) items.lines.push_back({strong("What would change our mind"), text(": " + change_our_mind(v))});
  const bool written = c.ended || !c.go_on.empty();  // while it runs the script is not there yet
  if (!repro.script.empty() && written)
    items.lines.push_back(
        {strong("Reproduce"), text(" without plumb: "), code("./reproduce.sh http://HOST:PORT"),
         text(fmt::format(" in the case folder sends prompt-1.json to prompt-{}.json with curl; the last answer should "
                          "be ",
                          repro.bodies.size())),
         code(repro.expected)});
  if (repro.script.empty() && !repro.expected.empty() && written)
    items.lines.push_back(
        {strong("Reproduce"), text(fmt::format(": the prompts are withheld; the trial is {} with seed {}",
                                               repro.item.cell, repro.item.seed))});
  out.push_back(std::move(items));
  out.push_back(Paragraph{{text(footnote(c))}, true});
  return out;
}

Blocks report_environment(const Case& c) {
  const Findings& f = c.outcome.findings;
  const Environment& e = c.environment;
  Items facts;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) facts.lines.push_back({text(std::string(what) + ": "), foreign(value)});
  };
  add("Date", e.date);
  add("Processor", e.cpu);
  add("System", e.os);
  add("Plumb", e.plumb + (e.commit.empty() ? "" : ", commit " + e.commit));
  if (!e.model.empty()) {
    Line model{text("Model: "), code(e.model)};
    if (!e.model_hash.empty()) {
      model.push_back(text(", hash "));
      model.push_back(code(e.model_hash));
    }
    facts.lines.push_back(std::move(model));
  }
  facts.lines.push_back({text(
      fmt::format("Case seed {}, wording {}", c.plan.seed, f.wording ? wording_name(*f.wording) : "none understood"))});
  Table switches{"Sides of the switches", {"switch", "as deployed", "reference"}, {}};
  for (std::size_t i = 0; i < f.deployed.size(); ++i)
    switches.rows.push_back({{foreign(c.plan.deployment.switches[i].name)},
                             {text(f.deployed[i] ? "on" : "off")},
                             {text(f.reference[i] ? "on" : "off")}});
  return {Heading{2, {text("Environment")}},
          std::move(facts),
          Paragraph{{text("Launch lines as deployed:")}},
          CodeBlock{launch_lines(c.plan.deployment, f.deployed)},
          std::move(switches),
          Paragraph{{text("Declared only: whether a side really ran was not measured.")}}};
}

}  // namespace plumb::investigator
