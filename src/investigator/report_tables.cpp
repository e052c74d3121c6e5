#include <algorithm>
#include <map>
#include <set>

#include "investigator/markdown.h"
#include "investigator/report_sections.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

constexpr std::size_t kMaxWrongRows = 20;
constexpr std::size_t kMaxLaunchRows = 130;

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
    for (const Column& k : cols) out += fmt::format(" {} |", rate(counts_in_report(c, k.variant, cell)));
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
      "prompt tok/s with it turned / failing variant |\n|---|---|---|---|---|---|\n";
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
    if (!row.cures || !row.harms) {
      constexpr double kRuledOut = 0.01;
      if (row.posterior <= kRuledOut)
        out += fmt::format(
            "| {} | turned together with others it makes no difference: the probability that it takes "
            "part is {:.1g} | group tests | {} |\n",
            c.plan.deployment.switches[row.index].name, row.posterior, r.cell);
      continue;
    }
    if (*row.cures || *row.harms) continue;
    out += fmt::format(
        "| {} | turned alone it does not cure: {} still fail; it does not harm: {} fail | {} | {} |\n",
        c.plan.deployment.switches[row.index].name, rate(row.cure), rate(row.harm),
        c.outcome.findings.floor.identical() ? "strong: repeated launches are equal to the bit" : "one launch each way",
        r.cell);
  }
  if (out.empty()) return "Nothing was ruled out.\n";
  return "| switch | evidence | strength | for which probe |\n|---|---|---|---|\n" + out;
}

std::string confirmation(const Case& c, const Round& r) {
  std::string out = "\n### Confirmation on fresh launches\n";
  if (r.contrasts.empty()) out += "Not reached.\n";
  for (const Contrast& k : r.contrasts)
    out += fmt::format("- {}: {}/{} launches that should fail did, {}/{} that should pass failed; e-value {:.3g}\n",
                       k.name, k.failed, k.pairs, k.wrongly_failed, k.pairs, k.e_value);
  if (r.confirmed && c.outcome.findings.floor.identical())
    out += "- Repeated launches were equal to the bit, so two pairs of launches suffice\n";
  for (const std::string& check : r.checks) out += "- " + check + "\n";
  return out;
}

std::string accounts(const Case& c) {
  const TrialAccount a = account_of(c);
  const int all = a.shown + a.repeated + a.other_variants + a.other_wording + a.weak + a.unanswered;
  std::string out =
      fmt::format("\nOf {} in all, {} are counted here, each prompt once a variant", counted(all, "trial"), a.shown);
  const auto add = [&](int count, const char* what) {
    if (count > 0) out += fmt::format("; {} {}", count, what);
  };
  add(a.repeated, "asked the same prompt of the same variant again");
  add(a.other_variants, "were asked of other variants (below)");
  add(a.weak, "are of the weak probe");
  add(a.other_wording, "tried a wording that the server does not understand");
  add(a.unanswered, "got no reply and say nothing");
  return out + ".\n";
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
        out += fmt::format("| {} | {}{} | {} | {} | {} | {}{} | {} |\n", plain_markdown(l.label), t.item.cell,
                           s.step.empty() ? "" : ": " + s.step, t.item.seed, code_span(s.expected), code_span(s.text),
                           grade_name(s.grade), s.detail.empty() ? "" : ": " + plain_markdown(s.detail),
                           s.cached_tokens ? std::to_string(*s.cached_tokens) : "–");
      }
  if (rows == 0) return "\n### Failing trials\nNone.\n";
  if (more > 0) out += fmt::format("\n{} more are in journal.sqlite.\n", more);
  return out;
}

std::string launch_log(const Case& c) {
  std::string names;
  for (const SwitchSpec& s : c.plan.deployment.switches) names += (names.empty() ? "" : ", ") + s.name;
  std::string out = fmt::format("\n### Launches\nVariant: one digit a switch, 1 on, 0 off, in this order: {}.\n\n",
                                names.empty() ? "there is none" : names);
  out += "| # | label | variant | status | ready s | right/trials |\n|---|---|---|---|---|---|\n";
  std::size_t rows = 0;
  for (const LaunchRecord& l : c.outcome.history.launches) {
    if (rows++ >= kMaxLaunchRows) break;
    int right = 0;
    for (const TrialRecord& t : l.trials) right += t.grade == Grade::right ? 1 : 0;
    std::string bits;
    for (const bool on : l.variant) bits += on ? '1' : '0';
    out += fmt::format("| {} | {} | {} | {}{} | {:.2f} | {}/{} |\n", l.id, plain_markdown(l.label), bits,
                       status_name(l.status), l.starts > 1 ? fmt::format(", continued in process {}", l.starts) : "",
                       l.ready_s, right, l.trials.size());
  }
  const std::size_t all = c.outcome.history.launches.size();
  if (all > kMaxLaunchRows) out += fmt::format("\n{} more are in journal.sqlite.\n", all - kMaxLaunchRows);
  return out;
}

}  // namespace

std::string rate(Counts c) {
  if (c.trials == 0) return "–";
  const Interval i = interval_95(c.failures, c.trials);
  return fmt::format("{}/{} ({:.0f}–{:.0f} %)", c.failures, c.trials, 100 * i.low, 100 * i.high);
}

std::string counted(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

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

Counts counts_in_report(const Case& c, const Variant& variant, const std::string& cell) {
  std::set<std::uint64_t> seeds;
  Counts counts;
  for (const LaunchRecord& l : c.outcome.history.launches) {
    if (l.variant != variant) continue;
    for (const TrialRecord& t : l.trials)
      if (t.item.cell == cell && t.wording == c.outcome.findings.wording && t.grade != Grade::infrastructure &&
          seeds.insert(t.item.seed).second)
        counts += {is_failure(t.grade) ? 1 : 0, 1};
  }
  return counts;
}

TrialAccount account_of(const Case& c) {
  const auto cols = columns(c);
  std::set<std::tuple<Variant, std::string, std::uint64_t>> seen;
  TrialAccount a;
  for (const LaunchRecord& l : c.outcome.history.launches) {
    const bool in_table =
        std::any_of(cols.begin(), cols.end(), [&](const Column& k) { return k.variant == l.variant; });
    for (const TrialRecord& t : l.trials) {
      const auto probe = probe_of(t.item.cell);
      if (t.grade == Grade::infrastructure)
        ++a.unanswered;
      else if (t.wording != c.outcome.findings.wording)
        ++a.other_wording;
      else if (probe && (*probe)->weak)
        ++a.weak;
      else if (!in_table)
        ++a.other_variants;
      else if (seen.insert({l.variant, t.item.cell, t.item.seed}).second)
        ++a.shown;
      else
        ++a.repeated;
    }
  }
  return a;
}

std::string report_probes(const Case& c) {
  return "\n## Probes: failing trials by variant\n" + probe_table(c) + accounts(c);
}

std::string report_round(const Case& c, const Round& r) {
  return fmt::format("\n## One switch at a time (probe `{}`, {} a launch, {} or more make a failing launch{})\n",
                     r.cell, counted(static_cast<std::size_t>(r.trials_per_launch), "trial"),
                     counted(static_cast<std::size_t>(r.threshold), "failure"),
                     r.replays ? ", known failing prompts" : "") +
         switch_table(c, r) + confirmation(c, r) + "\n### Ruled out\n" + ruled_out_table(c, r);
}

std::string report_trials(const Case& c) { return wrong_answers(c) + launch_log(c); }

}  // namespace plumb::investigator
