#include "investigator/report.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxWrongRows = 20;
constexpr std::size_t kMaxLaunchRows = 130;
constexpr std::size_t kMaxReproductionRequests = 8;
constexpr std::size_t kMaxMessage = 300;

std::string rate(Counts c) {
  if (c.trials == 0) return "–";
  const Interval i = interval_95(c.failures, c.trials);
  return fmt::format("{}/{} ({:.0f}–{:.0f} %)", c.failures, c.trials, 100 * i.low, 100 * i.high);
}

std::string in_cell(std::string text) {
  for (char& ch : text)
    if (ch == '\n' || ch == '\r' || ch == '|') ch = ' ';
  return text.size() > kMaxMessage ? text.substr(0, kMaxMessage) + "…" : text;
}

struct Column {
  std::string name;
  Variant variant;
};

// As deployed, reference, and the cured variant of each round.
std::vector<Column> columns(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::vector<Column> all{{"as deployed", f.deployed}};
  if (f.reference != f.deployed) all.push_back({"reference", f.reference});
  for (const Round& r : f.rounds) {
    if (r.hypothesis.members.empty()) continue;
    Variant cured = r.bad;
    for (const std::size_t s : r.hypothesis.members) cured[s] = r.good[s];
    if (std::none_of(all.begin(), all.end(), [&](const Column& k) { return k.variant == cured; }))
      all.push_back({"cured", cured});
  }
  return all;
}

// Failures of single steps ("hit: partial") of a cell on one variant, distinct prompts only.
std::map<std::string, Counts> step_counts(const History& h, const Variant& variant, const std::string& cell,
                                          Wording wording) {
  std::map<std::string, Counts> counts;
  std::map<std::uint64_t, bool> counted;
  for (const LaunchRecord& l : h.launches) {
    if (l.variant != variant) continue;
    for (const TrialRecord& t : l.trials) {
      if (t.item.cell != cell || t.wording != wording || t.grade == Grade::infrastructure) continue;
      if (!counted.emplace(t.item.seed, true).second) continue;
      for (const StepRecord& s : t.steps)
        if (s.graded && !s.step.empty()) counts[s.step] += {is_failure(s.grade) ? 1 : 0, 1};
    }
  }
  return counts;
}

std::optional<double> repetition_of(const History& h, const Variant& variant) {
  for (const LaunchRecord& l : h.launches)
    if (l.variant == variant)
      for (const TrialRecord& t : l.trials)
        if (t.item.cell == "repetition" && t.grade == Grade::right && !t.steps.empty())
          return gzip_ratio(t.steps[0].text);
  return std::nullopt;
}

std::string probe_table(const Case& c) {
  const Findings& f = c.outcome.findings;
  const auto cols = columns(c);
  std::string out = "| probe |";
  std::string rule = "|---|";
  for (const Column& k : cols) {
    out += fmt::format(" {} |", k.name);
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  for (const std::string& cell : c.plan.cells) {
    if (cell == "repetition") {
      out += "| repetition (weak): gzip size ÷ bytes |";
      for (const Column& k : cols) {
        const auto ratio = repetition_of(c.outcome.history, k.variant);
        out += ratio ? fmt::format(" {:.3f} |", *ratio) : " – |";
      }
      out += "\n";
      continue;
    }
    out += fmt::format("| {} |", cell);
    for (const Column& k : cols)
      out += fmt::format(" {} |", rate(count_trials(c.outcome.history, k.variant, "", cell)));
    out += "\n";
    std::map<std::string, std::vector<Counts>> steps;
    for (std::size_t i = 0; i < cols.size(); ++i)
      for (const auto& [step, counts] : step_counts(c.outcome.history, cols[i].variant, cell, *f.wording)) {
        steps[step].resize(cols.size());
        steps[step][i] = counts;
      }
    for (const auto& [step, by_column] : steps) {
      out += fmt::format("| · {}: {} |", cell, step);
      for (const Counts& counts : by_column) out += fmt::format(" {} |", rate(counts));
      out += "\n";
    }
  }
  return out;
}

// Prompt tokens per second of all requests of a variant: what turning a switch costs.
std::string speed(const History& h, const Variant& variant) {
  double tokens = 0;
  double seconds = 0;
  for (const LaunchRecord& l : h.launches)
    if (l.variant == variant)
      for (const TrialRecord& t : l.trials)
        for (const StepRecord& s : t.steps) {
          tokens += s.prompt_tokens.value_or(s.expected_tokens);
          seconds += s.seconds;
        }
  return seconds > 0 ? fmt::format("{:.0f}", tokens / seconds) : "–";
}

std::string said(const std::optional<bool>& value, const char* yes, const char* no) {
  return value ? (*value ? yes : no) : "not tested";
}

std::string switch_table(const Case& c, const Round& r) {
  std::string out =
      "| switch | turned in the failing variant: failures | cures | turned in the passing variant: failures | harms | "
      "prompt "
      "tok/s with it turned / failing variant |\n|---|---|---|---|---|---|\n";
  for (const SwitchRow& row : r.rows) {
    Variant turned = r.bad;
    turned[row.index] = r.good[row.index];
    out += fmt::format("| {} | {} → {}: {} | {} | {} → {}: {} | {} | {} / {} |\n",
                       c.plan.deployment.switches[row.index].name, r.bad[row.index] ? "on" : "off",
                       r.good[row.index] ? "on" : "off", rate(row.cure), said(row.cures, "**yes**", "no"),
                       r.good[row.index] ? "on" : "off", r.bad[row.index] ? "on" : "off", rate(row.harm),
                       said(row.harms, "**yes**", "no"), speed(c.outcome.history, turned),
                       speed(c.outcome.history, r.bad));
  }
  return out;
}

std::string ruled_out_table(const Case& c, const Round& r) {
  std::string out;
  for (const SwitchRow& row : r.rows) {
    const auto& members = r.hypothesis.members;
    if (std::find(members.begin(), members.end(), row.index) != members.end()) continue;
    if (!row.cures || !row.harms || *row.cures || *row.harms) continue;
    out += fmt::format(
        "| {} | turned alone it neither cures ({}) nor harms ({}) | {} | {} |\n",
        c.plan.deployment.switches[row.index].name, rate(row.cure), rate(row.harm),
        c.outcome.findings.floor.identical() ? "strong: repeated launches are equal to the bit" : "one launch each way",
        r.cell);
  }
  if (out.empty()) return "Nothing was ruled out.\n";
  return "| switch | evidence | strength | for which probe |\n|---|---|---|---|\n" + out;
}

std::string launch_lines(const Case& c, const Variant& variant) {
  std::string out;
  for (const ProcessSpec& p : c.plan.deployment.processes) {
    std::string line;
    const auto add_env = [&](const std::map<std::string, std::string>& env) {
      for (const auto& [key, value] : env) line += fmt::format("{}={} ", key, without_paths(value));
    };
    add_env(p.env);
    std::vector<std::string> args;
    for (const std::string& a : p.command) args.push_back(without_paths(a));
    for (std::size_t i = 0; i < variant.size(); ++i) {
      const SwitchSpec& s = c.plan.deployment.switches[i];
      if (!s.processes.empty() && std::find(s.processes.begin(), s.processes.end(), p.name) == s.processes.end())
        continue;
      const SwitchSide& side = variant[i] ? s.on : s.off;
      add_env(side.env);
      args.insert(args.end(), side.args.begin(), side.args.end());
    }
    out += fmt::format("{}: {}{}\n", p.name, line, fmt::join(args, " "));
  }
  return out;
}

std::string culprit_text(const Verdict& v) {
  std::vector<std::string> names;
  for (const Culprit& k : v.culprits) names.push_back(fmt::format("`{}` {} ({})", k.switch_name, k.side, k.word));
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, v.klass == "and" ? " together with " : ", "));
}

std::string symptom_line(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::string cell = f.rounds.empty() ? "" : f.rounds.front().cell;
  std::vector<std::string> parts;
  for (const Column& k : columns(c)) {
    Counts counts;
    if (!cell.empty()) {
      counts = count_trials(c.outcome.history, k.variant, "", cell);
    } else {
      for (const std::string& each : c.plan.cells)
        if (each != "repetition") counts += count_trials(c.outcome.history, k.variant, "", each);
    }
    parts.push_back(fmt::format("{} {}", k.name, rate(counts)));
  }
  return fmt::format("{}: failing trials, 95 % intervals: {}", cell.empty() ? "all probes" : "probe `" + cell + "`",
                     fmt::join(parts, ", "));
}

std::string change_our_mind(const Verdict& v) {
  if (v.verdict == "clean") return "one failing trial in a new launch, or a probe longer than those asked";
  if (v.verdict == "confirmed")
    return "a launch of the cured variant that fails, or one with the culprit alone that passes";
  if (v.verdict == "unexplained") return "any variant that passes the failing probe";
  return "more launches: see the reasons and open questions below";
}

std::string head(const Case& c, const Reproduction& repro) {
  const Findings& f = c.outcome.findings;
  const Verdict& v = f.verdict;
  std::string out = fmt::format("# Plumb: {}: {}\n",
                                c.plan.deployment.name.empty() ? "deployment" : c.plan.deployment.name, v.verdict);
  out += fmt::format("- **Symptom** {}\n", symptom_line(c));
  out += fmt::format("- **Verdict** {}, class {}{}\n", v.verdict, v.klass,
                     v.posterior ? fmt::format(", posterior {:.4f} ({:.4f} under a flat prior)", *v.posterior,
                                               v.posterior_flat_prior.value_or(0))
                                 : "");
  out += fmt::format("- **Culprits** {}\n", culprit_text(v));
  out += fmt::format("- **Launches** {} floor, {} search, {} confirmation; {} trials in {:.0f} s\n", v.floor_launches,
                     v.search_launches, v.confirm_launches, v.trials, c.outcome.history.elapsed_s);
  out += fmt::format("- **Why** {}\n", f.reasons.empty() ? "–" : in_cell(f.reasons.back()));
  out += fmt::format("- **What would change our mind** {}\n", change_our_mind(v));
  if (!repro.script.empty()) {
    out += fmt::format(
        "- **Reproduce** without plumb: `./reproduce.sh http://HOST:PORT`, expected answer `{}`; its last step:\n",
        repro.expected);
    out += fmt::format("  `curl -s http://HOST:PORT/v1/{} -H 'Content-Type: application/json' -d @prompt-{}.json`\n",
                       f.wording == Wording::plain ? "chat/completions" : "completions", repro.bodies.size());
  } else {
    out += "- **Reproduce**: nothing failed, so there is nothing to reproduce\n";
  }
  return out;
}

std::string environment(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::string out = fmt::format(
      "\n## Environment\nplumb 0.1.0, case seed {}, wording {}. Launch lines as deployed:\n\n```\n{}```\n\n",
      c.plan.seed, f.wording ? wording_name(*f.wording) : "none", launch_lines(c, f.deployed));
  out += "| switch | as deployed | reference |\n|---|---|---|\n";
  for (std::size_t i = 0; i < f.deployed.size(); ++i)
    out += fmt::format("| {} | {} | {} |\n", c.plan.deployment.switches[i].name, f.deployed[i] ? "on" : "off",
                       f.reference[i] ? "on" : "off");
  out += "\nDeclared only: whether a side really ran was not measured.\n";
  return out;
}

std::string confirmation(const Round& r) {
  std::string out = "\n### Confirmation on fresh launches\n";
  if (r.contrasts.empty()) out += "Not reached.\n";
  for (const Contrast& k : r.contrasts)
    out += fmt::format("- {}: {}/{} launches that should fail did, {}/{} that should pass failed; e-value {:.3g}\n",
                       k.name, k.failed, k.pairs, k.wrongly_failed, k.pairs, k.e_value);
  for (const std::string& check : r.checks) out += "- " + check + "\n";
  return out;
}

std::string assumptions(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::string out = "\n## Assumptions tested\n";
  out += fmt::format(
      "- Floor: {} launches shared prompts with another launch of their variant; {} of {} repeated replies "
      "differ{}\n",
      f.floor.launches, f.floor.different_replies, f.floor.compared_replies,
      f.floor.identical() ? " (equal to the bit)" : "");
  if (f.verdict.trial_failure_rate_95)
    out += fmt::format("- Trial failure rate as deployed: at most {:.1f} % (95 %)\n",
                       100 * *f.verdict.trial_failure_rate_95);
  if (f.verdict.launch_failure_rate_95)
    out += fmt::format(
        "- A fault that shows in some launches only may still have a rate of up to {:.0f} % of launches (95 %)\n",
        100 * *f.verdict.launch_failure_rate_95);
  out += "- Distance D of log-probabilities to the reference: not measured in this version\n";
  return out;
}

std::string wrong_answers(const Case& c) {
  std::string out =
      "\n### Failing trials\n| launch | probe | seed | expected | reply | class | cached "
      "|\n|---|---|---|---|---|---|---|\n";
  std::size_t rows = 0;
  std::size_t more = 0;
  for (const LaunchRecord& l : c.outcome.history.launches)
    for (const TrialRecord& t : l.trials)
      for (const StepRecord& s : t.steps) {
        if (!s.graded || !is_failure(s.grade)) continue;
        if (rows++ >= kMaxWrongRows) {
          ++more;
          continue;
        }
        out += fmt::format("| {} | {}{} | {} | {} | {} | {}{} | {} |\n", l.label, t.item.cell,
                           s.step.empty() ? "" : ": " + s.step, t.item.seed, s.expected, in_cell(s.text),
                           grade_name(s.grade), s.detail.empty() ? "" : ": " + in_cell(s.detail),
                           s.cached_tokens ? std::to_string(*s.cached_tokens) : "–");
      }
  if (rows == 0) return "\n### Failing trials\nNone.\n";
  if (more > 0) out += fmt::format("\n{} more are in journal.sqlite.\n", more);
  return out;
}

std::string launch_log(const Case& c) {
  std::string out =
      "\n### Launches\n| # | label | variant | status | ready s | right/trials |\n|---|---|---|---|---|---|\n";
  std::size_t rows = 0;
  for (const LaunchRecord& l : c.outcome.history.launches) {
    if (rows++ >= kMaxLaunchRows) break;
    int right = 0;
    for (const TrialRecord& t : l.trials) right += t.grade == Grade::right ? 1 : 0;
    std::string bits;
    for (const bool on : l.variant) bits += on ? '1' : '0';
    out += fmt::format("| {} | {} | {} | {}{} | {:.2f} | {}/{} |\n", l.id, l.label, bits, status_name(l.status),
                       l.starts > 1 ? fmt::format(" (continued in process {})", l.starts) : "", l.ready_s, right,
                       l.trials.size());
  }
  if (rows > kMaxLaunchRows) out += fmt::format("\n{} more are in journal.sqlite.\n", rows - kMaxLaunchRows);
  return out;
}

std::string open_questions(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::string out = "\n## Not tested\n";
  for (const SwitchSpec& s : c.plan.deployment.switches)
    if (!s.working_off) out += fmt::format("- `{}` has no working off side: test it by a golden comparison\n", s.name);
  for (const std::string& what : f.verdict.not_covered) out += "- " + what + "\n";
  out += "- prompts longer than 1,024 tokens, several requests at once, precision that leaves answers right\n";
  out += "\n## Open questions\n";
  for (const std::string& q : f.open_questions) out += "- " + in_cell(q) + "\n";
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

std::string status_sections(const Case& c) {
  const Findings& f = c.outcome.findings;
  const bool ended = c.ended;
  std::string out = "\n<details><summary>Status of the investigation</summary>\n\n";
  out += "### Goal\nFind the switch or switches that break exact recall, or show that none does.\n";
  out += fmt::format("### Constraints\nAt most {} launches, {} minutes, {} tokens.\n", c.plan.limits.max_restarts,
                     c.plan.limits.max_minutes,
                     c.plan.limits.max_tokens == 0 ? "any number of" : std::to_string(c.plan.limits.max_tokens));
  out += fmt::format("### Done\n{} launches, {} rounds of isolation.\n", c.outcome.history.starts(), f.rounds.size());
  out += fmt::format("### In progress\n{}\n", ended ? "Nothing." : "The case is not finished: `plumb isolate CASE`.");
  out += fmt::format("### Blocked\n{}\n", f.verdict.not_covered.empty() ? "Nothing." : "See “Not tested”.");
  out += "### Decisions\n";
  for (const std::string& reason : f.reasons) out += "- " + in_cell(reason) + "\n";
  out += "### Next steps\nSee “Open questions”.\n";
  out += "### Critical context\nProbes are synthetic; every reply is in the journal.\n";
  out += "### Relevant files\n`deployment.toml`, `journal.sqlite`, `report.json`, `reproduce.sh`, `logs/`\n";
  return out + wrong_answers(c) + launch_log(c) + "\n</details>\n";
}

std::optional<std::pair<const LaunchRecord*, const TrialRecord*>> failing_trial(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::optional<std::pair<const LaunchRecord*, const TrialRecord*>> any;
  for (const LaunchRecord& l : c.outcome.history.launches)
    for (const TrialRecord& t : l.trials) {
      if (!is_failure(t.grade) || t.wording != f.wording) continue;
      if (!any) any = std::pair(&l, &t);
      if (!f.rounds.empty() && l.variant == f.rounds.front().bad && t.item.cell == f.rounds.front().cell)
        return std::pair(&l, &t);
    }
  return any;
}

}  // namespace

std::string without_paths(const std::string& text) {
  constexpr std::string_view kBeforePath = " \t\n=:,;'\"(<[{";
  constexpr std::string_view kAfterPath = " \t\n:,;'\")>]}";
  constexpr std::string_view kFileScheme = "file://";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool word_start = at == 0 || kBeforePath.find(text[at - 1]) != std::string_view::npos;
    const bool scheme = at + 1 < text.size() && text[at + 1] == '/' && at > 0 && text[at - 1] == ':';
    const bool after_file =
        at >= kFileScheme.size() && text.compare(at - kFileScheme.size(), kFileScheme.size(), kFileScheme) == 0;
    if (text[at] != '/' || !((word_start && !scheme) || after_file)) {
      out += text[at++];
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(kAfterPath, at), text.size());
    const std::string path = text.substr(at, end - at);
    out += path.size() == 1 ? path : "<path>" + path.substr(path.rfind('/'));
    at = end;
  }
  return out;
}

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

Reproduction reproduction(const Case& c) {
  Reproduction r;
  const auto failing = failing_trial(c);
  if (!failing) return r;
  const auto& [launch, trial] = *failing;
  const Item item = make_item(trial->item, trial->wording, shape_of(c.plan.deployment));
  const auto bad = std::find_if(trial->steps.begin(), trial->steps.end(),
                                [](const StepRecord& s) { return s.graded && is_failure(s.grade); });
  const auto count = static_cast<std::size_t>(bad - trial->steps.begin()) + 1;
  if (count > item.asks.size() || count > kMaxReproductionRequests) return r;
  r.expected = bad->expected;
  const std::string model = c.plan.deployment.endpoints.empty() ? "" : c.plan.deployment.endpoints.front().model;
  for (std::size_t i = 0; i < count; ++i)
    r.bodies.push_back(request_body(item.asks[i], model, c.plan.deployment.request, c.plan.deployment.request.extra) +
                       "\n");
  r.script = fmt::format(
      "#!/bin/sh\n"
      "# Shows the symptom with curl alone. Usage: ./reproduce.sh http://HOST:PORT\n"
      "# Failing variant: {}\n{}"
      "# Probe {}, seed {}. The last request must be answered with {}.\n"
      "set -eu\n"
      "url=${{1:?usage: reproduce.sh http://HOST:PORT}}\n"
      "cd \"$(dirname \"$0\")\"\n"
      "for i in {}; do\n"
      "  reply=$(curl -sS \"$url/v1/{}\" -H 'Content-Type: application/json' -d @prompt-$i.json)\n"
      "  echo \"$i: $reply\"\n"
      "done\n"
      "case $reply in\n"
      "  *{}*) echo 'the expected answer came: the symptom does not show'; exit 0 ;;\n"
      "  *) echo 'expected {}: the symptom shows'; exit 1 ;;\n"
      "esac\n",
      describe(c.plan.deployment, launch->variant),
      [&] {
        std::string lines = launch_lines(c, launch->variant);
        std::string commented;
        std::size_t begin = 0;
        for (std::size_t end = lines.find('\n'); end != std::string::npos; end = lines.find('\n', begin)) {
          commented += "#   " + lines.substr(begin, end - begin) + "\n";
          begin = end + 1;
        }
        return commented;
      }(),
      trial->item.cell, trial->item.seed, r.expected,
      [&] {
        std::vector<std::size_t> numbers;
        for (std::size_t i = 1; i <= count; ++i) numbers.push_back(i);
        return fmt::format("{}", fmt::join(numbers, " "));
      }(),
      trial->wording == Wording::plain ? "chat/completions" : "completions", r.expected, r.expected);
  return r;
}

std::string report_markdown(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::string out = head(c, reproduction(c)) + environment(c);
  if (f.wording) out += "\n## Probes: failing trials by variant\n" + probe_table(c);
  for (const Round& r : f.rounds) {
    out +=
        fmt::format("\n## One switch at a time (probe `{}`, {} trials a launch, {} failures make a failing launch{})\n",
                    r.cell, r.trials_per_launch, r.threshold, r.replays ? ", known failing prompts" : "");
    out += switch_table(c, r) + confirmation(r) + "\n### Ruled out\n" + ruled_out_table(c, r);
  }
  out += assumptions(c) + open_questions(c) + status_sections(c);
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
