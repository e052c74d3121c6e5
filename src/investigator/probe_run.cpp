#include "investigator/probe_run.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "investigator/log_tail.h"
#include "investigator/markup.h"
#include "investigator/paired.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

double mean_seconds(const ProbeTarget& target, const std::string& cell) {
  double sum = 0;
  int requests = 0;
  for (const TrialRecord& t : target.trials)
    if (t.item.cell == cell)
      for (const StepRecord& s : t.steps) {
        sum += s.seconds;
        ++requests;
      }
  return requests == 0 ? 0 : sum / requests;
}

// For a line on a terminal: no control characters, cut.
std::string on_one_line(const std::string& text) {
  constexpr std::size_t kMostBytes = 120;
  std::string out = printable(text, kMostBytes);
  std::replace(out.begin(), out.end(), '\n', ' ');
  std::replace(out.begin(), out.end(), '\t', ' ');
  return out;
}

}  // namespace

Counts counts_of(const ProbeTarget& target, const std::string& cell) {
  Counts c;
  for (const TrialRecord& t : target.trials)
    if (t.item.cell == cell && t.wording == target.wording && t.grade != Grade::infrastructure)
      c += {is_failure(t.grade) ? 1 : 0, 1};
  return c;
}

int ProbeReport::failures() const {
  int sum = 0;
  for (const ProbeTarget& t : targets)
    for (const std::string& cell : cells) sum += counts_of(t, cell).failures;
  return sum;
}

int ProbeReport::exit_code() const { return failures() > 0 ? 1 : not_covered.empty() ? 0 : 2; }

std::string ProbeReport::table() const {
  std::string out;
  for (const ProbeTarget& t : targets) {
    out += fmt::format("{} (wording: {})\n", t.name, t.wording ? wording_name(*t.wording) : "none understood");
    out += fmt::format("  {:<14} {:>11} {:>15} {:>10}\n", "probe", "right", "failing, 95 %", "s/request");
    for (const std::string& cell : cells) {
      const Counts c = counts_of(t, cell);
      const Interval i = interval_95(c.failures, c.trials);
      out += fmt::format("  {:<14} {:>5}/{:<5} {:>6.1f} –{:>5.1f} % {:>10.3f}\n", cell, c.trials - c.failures, c.trials,
                         100 * i.low, 100 * i.high, mean_seconds(t, cell));
    }
  }
  for (const ProbeTarget& t : targets)
    for (const std::string& cell : cells)
      for (const Failure& f : first_failures(t, cell))
        out += fmt::format("failed: {}{}{}, seed {}: expected \"{}\", got \"{}\" ({})\n",
                           targets.size() > 1 ? t.name + ": " : "", cell, f.step.empty() ? "" : " " + f.step, f.seed,
                           f.expected, on_one_line(f.got), f.grade);
  out += comparison_table();
  for (const std::string& open : not_covered) out += "not covered: " + open + "\n";
  if (!next.empty()) out += "next: " + next + "\n";
  return out;
}

std::string ProbeReport::comparison_table() const {
  const std::vector<Comparison> compared = comparison();
  if (compared.empty()) return {};
  std::string out =
      fmt::format("the same prompts at A = {} and B = {}\n  {:<14} {:>8} {:>13} {:>13} {:>10}\n", targets[0].name,
                  targets[1].name, "probe", "prompts", "only A fails", "only B fails", "both fail");
  for (const Comparison& c : compared)
    out += fmt::format("  {:<14} {:>8} {:>13} {:>13} {:>10}\n", c.cell, c.prompts, c.only_first_fails,
                       c.only_second_fails, c.both_fail);
  return out + "  " + difference().sentence() + "\n";
}

ProbeReport::Difference ProbeReport::difference() const {
  Difference d;
  for (const Comparison& c : comparison()) {
    d.prompts += c.prompts;
    d.only_first_fails += c.only_first_fails;
    d.only_second_fails += c.only_second_fails;
  }
  d.e_value = discordant_e_value(d.only_first_fails, d.only_second_fails);
  return d;
}

std::string ProbeReport::Difference::word() const {
  if (prompts == 0) return "not compared";
  const std::string worse = only_first_fails > only_second_fails ? "A" : "B";
  if (e_value >= kShownEValue) return worse + " is worse";
  return e_value >= kHintedEValue ? worse + " may be worse" : "no difference shown";
}

std::string ProbeReport::Difference::sentence() const {
  std::string text =
      fmt::format("{}: of {} prompts {} fail at A alone and {} at B alone (e-value {:.3g}; {} counts as shown)", word(),
                  prompts, only_first_fails, only_second_fails, e_value, kShownEValue);
  if (prompts > 0 && e_value < kShownEValue)
    text += fmt::format("; a loss of more than {:.1f} points at B alone is excluded at 95 %, send more with --trials",
                        100 * upper_limit(only_second_fails, prompts, 0.95));
  return text;
}

std::vector<ProbeReport::Failure> ProbeReport::first_failures(const ProbeTarget& target,
                                                              const std::string& cell) const {
  std::vector<Failure> list;
  for (const TrialRecord& t : target.trials) {
    if (t.item.cell != cell || t.wording != target.wording) continue;
    for (const StepRecord& s : t.steps)
      if (s.graded && is_failure(s.grade) && list.size() < kShownFailures)
        list.push_back({.cell = cell,
                        .step = s.step,
                        .seed = t.item.seed,
                        .expected = s.expected,
                        .got = s.text,
                        .grade = s.detail.empty() ? std::string(grade_name(s.grade))
                                                  : fmt::format("{}: {}", grade_name(s.grade), s.detail)});
  }
  return list;
}

std::vector<ProbeReport::Comparison> ProbeReport::comparison() const {
  if (targets.size() != 2 || !targets[0].wording || targets[0].wording != targets[1].wording) return {};
  std::vector<Comparison> list;
  for (const std::string& cell : cells) {
    if (is_weak(cell)) continue;
    Comparison c{.cell = cell};
    for (const TrialRecord& a : targets[0].trials) {
      if (a.item.cell != cell || a.wording != targets[0].wording || a.grade == Grade::infrastructure) continue;
      const auto b = std::find_if(targets[1].trials.begin(), targets[1].trials.end(), [&](const TrialRecord& t) {
        return t.item == a.item && t.wording == a.wording && t.grade != Grade::infrastructure;
      });
      if (b == targets[1].trials.end()) continue;
      const bool a_failed = is_failure(a.grade);
      const bool b_failed = is_failure(b->grade);
      ++c.prompts;
      c.only_first_fails += a_failed && !b_failed ? 1 : 0;
      c.only_second_fails += b_failed && !a_failed ? 1 : 0;
      c.both_fail += a_failed && b_failed ? 1 : 0;
    }
    list.push_back(std::move(c));
  }
  return list;
}

std::string ProbeReport::json() const {
  Json j{{"targets", Json::array()}, {"failures", failures()}, {"not_covered", not_covered}};
  for (const ProbeTarget& t : targets) {
    Json rows = Json::array();
    for (const std::string& cell : cells) {
      const Counts c = counts_of(t, cell);
      const Interval i = interval_95(c.failures, c.trials);
      Json failed = Json::array();
      for (const Failure& f : first_failures(t, cell))
        failed.push_back(
            {{"step", f.step}, {"seed", f.seed}, {"expected", f.expected}, {"got", f.got}, {"grade", f.grade}});
      rows.push_back({{"probe", cell},
                      {"failures", c.failures},
                      {"trials", c.trials},
                      {"low_95", i.low},
                      {"high_95", i.high},
                      {"seconds", mean_seconds(t, cell)},
                      {"first_failures", failed}});
    }
    j["targets"].push_back(
        {{"name", t.name}, {"wording", t.wording ? Json(wording_name(*t.wording)) : Json()}, {"probes", rows}});
  }
  if (const std::vector<Comparison> compared = comparison(); !compared.empty()) {
    j["comparison"] = Json::array();
    for (const Comparison& c : compared)
      j["comparison"].push_back({{"probe", c.cell},
                                 {"prompts", c.prompts},
                                 {"only_first_fails", c.only_first_fails},
                                 {"only_second_fails", c.only_second_fails},
                                 {"both_fail", c.both_fail}});
    const Difference d = difference();
    j["difference"] = {{"word", d.word()}, {"sentence", d.sentence()}, {"e_value", d.e_value}};
  }
  if (!next.empty()) j["next"] = next;
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ProbeReport::junit() const {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const ProbeTarget& t : targets) {
    out += fmt::format("  <testsuite name=\"{}\">\n", escape_markup(t.name));
    for (const TrialRecord& trial : t.trials) {
      if (trial.wording != t.wording) continue;
      double seconds = 0;
      for (const StepRecord& s : trial.steps) seconds += s.seconds;
      out += fmt::format("    <testcase classname=\"{}\" name=\"seed {}\" time=\"{:.3f}\"",
                         escape_markup(trial.item.cell), trial.item.seed, seconds);
      const auto bad = std::find_if(trial.steps.begin(), trial.steps.end(),
                                    [&](const StepRecord& s) { return s.grade == trial.grade; });
      if (trial.grade == Grade::right) {
        out += "/>\n";
      } else {
        const char* element = trial.grade == Grade::infrastructure ? "error" : "failure";
        out += fmt::format("><{} message=\"{}{}{}\">expected &quot;{}&quot;, got &quot;{}&quot;</{}></testcase>\n",
                           element, grade_name(trial.grade), bad->detail.empty() ? "" : ": ",
                           escape_markup(bad->detail), escape_markup(bad->expected), escape_markup(bad->text), element);
      }
    }
    for (const std::string& open : not_covered)
      if (open.starts_with(t.name))
        out += fmt::format("    <testcase classname=\"coverage\" name=\"{}\"><skipped/></testcase>\n",
                           escape_markup(open));
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace plumb::investigator
