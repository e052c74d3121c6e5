#include <algorithm>

#include "investigator/report_model.h"
#include "investigator/report_redaction.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

constexpr std::size_t kMaxWrongRows = 20;
constexpr std::size_t kMaxLaunchRows = 130;

Table probe_table(const Case& c) {
  Table table{"Failing trials by probe and variant", {"probe"}, {}};
  for (const Column& k : columns(c)) table.head.push_back(k.name);
  for (const ProbeRow& probe : probe_rows(c)) {
    std::vector<Line> row{{text(probe.weak ? "repetition (weak): gzip size ÷ bytes" : probe.cell)}};
    for (std::size_t i = 0; i < probe.counts.size(); ++i) {
      if (!probe.weak)
        row.push_back({text(rate(probe.counts[i]))});
      else
        row.push_back({text(probe.gzip[i] ? fmt::format("{:.3f}", *probe.gzip[i]) : "–")});
    }
    table.rows.push_back(std::move(row));
    for (const ProbeRow::Step& step : probe.steps) {
      table.rows.push_back({{text(fmt::format("· {}: {}", probe.cell, step.name))}});
      for (const Counts& counts : step.counts) table.rows.back().push_back({text(rate(counts))});
    }
  }
  return table;
}

std::string speed(const Case& c, const Variant& variant) {
  const auto tokens = prompt_speed(c.outcome.history, variant);
  return tokens ? fmt::format("{:.0f}", *tokens) : "–";
}

Run said(const std::optional<bool>& value) { return !value ? text("not tested") : *value ? strong("yes") : text("no"); }

Table switch_table(const Case& c, const Round& r) {
  Table table{"One switch at a time",
              {"switch", "turned in the failing variant: failures", "cures", "turned in the passing variant: failures",
               "harms", "prompt tok/s with it turned / failing variant"},
              {}};
  const auto side = [](bool on) { return on ? "on" : "off"; };
  for (const SwitchRow& row : r.rows) {
    const bool bad = r.bad[row.index];
    const bool good = r.good[row.index];
    Variant turned = r.bad;
    turned[row.index] = good;
    table.rows.push_back({{foreign(c.plan.deployment.switches[row.index].name)},
                          {text(fmt::format("{} → {}: {}", side(bad), side(good), rate(row.cure)))},
                          {said(row.cures)},
                          {text(fmt::format("{} → {}: {}", side(good), side(bad), rate(row.harm)))},
                          {said(row.harms)},
                          {text(fmt::format("{} / {}", speed(c, turned), speed(c, r.bad)))}});
  }
  return table;
}

Block ruled_out_table(const Case& c, const Round& r) {
  Table table{"Switches ruled out", {"switch", "evidence", "strength", "for which probe"}, {}};
  for (const SwitchRow& row : r.rows) {
    if (!is_ruled_out(r, row)) continue;
    const std::string& name = c.plan.deployment.switches[row.index].name;
    if (!row.cures || !row.harms) {
      table.rows.push_back(
          {{foreign(name)},
           {text(fmt::format("turned together with others it makes no difference: the probability that "
                             "it takes part is {:.1g}",
                             row.posterior))},
           {text("group tests")},
           {text(r.cell)}});
      continue;
    }
    table.rows.push_back({{foreign(name)},
                          {text(fmt::format("turned alone it does not cure: {} still fail; it does not harm: {} fail",
                                            rate(row.cure), rate(row.harm)))},
                          {text(c.outcome.findings.floor.identical() ? "strong: repeated launches are equal to the bit"
                                                                     : "one launch each way")},
                          {text(r.cell)}});
  }
  if (table.rows.empty()) return Paragraph{{text("Nothing was ruled out.")}};
  return table;
}

Blocks confirmation(const Case& c, const Round& r) {
  Blocks out{Heading{3, {text("Confirmation on fresh launches")}}};
  if (r.contrasts.empty()) out.push_back(Paragraph{{text("Not reached.")}});
  Items items;
  for (const Contrast& k : r.contrasts)
    items.lines.push_back(
        {foreign(k.name), text(fmt::format(": {}/{} launches that should fail did, {}/{} that should "
                                           "pass failed; e-value {:.3g}",
                                           k.failed, k.pairs, k.wrongly_failed, k.pairs, k.e_value))});
  if (r.confirmed && c.outcome.findings.floor.identical())
    items.lines.push_back({text("Repeated launches were equal to the bit, so two pairs of launches suffice")});
  for (const std::string& check : r.checks) items.lines.push_back({foreign(check)});
  if (!items.lines.empty()) out.push_back(std::move(items));
  return out;
}

std::string accounts(const Case& c) {
  const TrialAccount a = account_of(c);
  const int all = a.shown + a.repeated + a.other_variants + a.other_wording + a.weak + a.unanswered;
  std::string out = fmt::format("Of {} in all, {} are counted here, each prompt once a variant",
                                counted(static_cast<std::size_t>(all), "trial"), a.shown);
  const auto add = [&](int count, const char* what) {
    if (count > 0) out += fmt::format("; {} {}", count, what);
  };
  add(a.repeated, "asked the same prompt of the same variant again");
  add(a.other_variants, "were asked of other variants (below)");
  add(a.weak, "are of the weak probe");
  add(a.other_wording, "tried a wording that the server does not understand");
  add(a.unanswered, "got no reply and say nothing");
  return out + ".";
}

Blocks wrong_answers(const Case& c) {
  Blocks out{Heading{3, {text("Failing trials")}}};
  const auto steps = failing_steps(c);
  if (steps.empty()) {
    out.push_back(Paragraph{{text("None.")}});
    return out;
  }
  Table table{"Failing trials", {"launch", "probe", "seed", "expected", "reply", "class", "cached"}, {}};
  for (std::size_t i = 0; i < std::min(steps.size(), kMaxWrongRows); ++i) {
    const auto& [launch, trial, step] = steps[i];
    Line klass{text(std::string(grade_name(step->grade)))};
    if (!step->detail.empty()) {
      klass.push_back(text(": "));
      klass.push_back(foreign(step->detail));
    }
    table.rows.push_back({{foreign(launch->label)},
                          {text(trial->item.cell + (step->step.empty() ? "" : ": " + step->step))},
                          {text(std::to_string(trial->item.seed))},
                          {code(step->expected)},
                          {code(shown_reply(c, trial->item.cell, step->text))},
                          std::move(klass),
                          {text(step->cached_tokens ? std::to_string(*step->cached_tokens) : "–")}});
  }
  out.push_back(std::move(table));
  if (steps.size() > kMaxWrongRows)
    out.push_back(Paragraph{{text(fmt::format("{} more are in journal.sqlite.", steps.size() - kMaxWrongRows))}});
  return out;
}

Blocks launch_log(const Case& c) {
  Line legend{text("Variant: one digit a switch, 1 on, 0 off, in this order: ")};
  for (const SwitchSpec& s : c.plan.deployment.switches) {
    if (legend.size() > 1) legend.push_back(text(", "));
    legend.push_back(foreign(s.name));
  }
  legend.push_back(text(legend.size() == 1 ? "there is none." : "."));
  Table table{"Launches", {"#", "label", "variant", "status", "ready s", "right/trials"}, {}};
  const auto entries = launch_entries(c);
  for (std::size_t i = 0; i < std::min(entries.size(), kMaxLaunchRows); ++i) {
    const LaunchEntry& e = entries[i];
    table.rows.push_back(
        {{text(std::to_string(e.id))},
         {foreign(e.label)},
         {text(e.bits)},
         {text(std::string(status_name(e.status)) + (e.starts > 1  ? fmt::format(", continued in process {}", e.starts)
                                                     : e.host != 0 ? fmt::format(", in the processes of {}", e.host)
                                                                   : ""))},
         {text(fmt::format("{:.2f}", e.ready_s))},
         {text(fmt::format("{}/{}", e.right, e.trials))}});
  }
  Blocks out{Heading{3, {text("Launches")}}, Paragraph{std::move(legend)}, std::move(table)};
  if (entries.size() > kMaxLaunchRows)
    out.push_back(Paragraph{{text(fmt::format("{} more are in journal.sqlite.", entries.size() - kMaxLaunchRows))}});
  return out;
}

}  // namespace

std::string rate(Counts c) {
  if (c.trials == 0) return "–";
  const Interval i = interval_95(c.failures, c.trials);
  return fmt::format("{}/{} ({:.0f}–{:.0f}\u00a0%)", c.failures, c.trials, 100 * i.low, 100 * i.high);
}

std::string counted(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

Blocks report_probes(const Case& c) {
  return {Heading{2, {text("Probes: failing trials by variant")}}, probe_table(c), Paragraph{{text(accounts(c))}}};
}

Blocks report_round(const Case& c, const Round& r) {
  Blocks out{Heading{2,
                     {text("One switch at a time (probe "), code(r.cell),
                      text(fmt::format(", {} a launch, {} or more make a failing launch{})",
                                       counted(static_cast<std::size_t>(r.trials_per_launch), "trial"),
                                       counted(static_cast<std::size_t>(r.threshold), "failure"),
                                       r.replays ? ", known failing prompts" : ""))}},
             switch_table(c, r)};
  append(out, confirmation(c, r));
  out.push_back(Heading{3, {text("Ruled out")}});
  out.push_back(ruled_out_table(c, r));
  return out;
}

Blocks report_trials(const Case& c) {
  Blocks out = wrong_answers(c);
  append(out, launch_log(c));
  return out;
}

}  // namespace plumb::investigator
