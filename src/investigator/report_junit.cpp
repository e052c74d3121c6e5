#include <algorithm>

#include <fmt/format.h>

#include "investigator/markdown.h"
#include "investigator/markup.h"
#include "investigator/report.h"
#include "investigator/report_redaction.h"

namespace plumb::investigator {
namespace {

// A test case as it is written, and what it counts for.
struct TestCase {
  enum class Result { passed, failure, error, skipped } result = Result::passed;
  std::string klass;
  std::string name;
  std::string message;
  std::string text{};
};
using TestResult = TestCase::Result;

std::string shown(const std::string& foreign_text) { return escape_markup(in_one_line(foreign_text)); }

std::string write_case(const TestCase& t) {
  const std::string head =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"0\"", shown(t.klass), shown(t.name));
  if (t.result == TestResult::passed) return head + "/>\n";
  const char* element = t.result == TestResult::failure ? "failure"
                        : t.result == TestResult::error ? "error"
                                                        : "skipped";
  const std::string body = t.text.empty() ? "/>" : fmt::format(">{}</{}>", escape_markup(t.text), element);
  return fmt::format("{}><{} message=\"{}\"{}</testcase>\n", head, element, escape_markup(t.message), body);
}

std::string write_suite(const std::string& name, const std::vector<TestCase>& cases) {
  const auto count = [&](TestResult result) {
    return std::count_if(cases.begin(), cases.end(), [&](const TestCase& t) { return t.result == result; });
  };
  std::string out = fmt::format(
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"0\">\n", shown(name),
      cases.size(), count(TestResult::failure), count(TestResult::error), count(TestResult::skipped));
  for (const TestCase& t : cases) out += write_case(t);
  return out + "  </testsuite>\n";
}

// The first failing question of a probe on a variant.
std::string example_of(const Case& c, const std::vector<FailingStep>& steps, const Variant& variant,
                       const std::string& cell) {
  for (const FailingStep& f : steps)
    if (f.launch->variant == variant && f.trial->item.cell == cell)
      return fmt::format("seed {}: expected {}, got {}", f.trial->item.seed, in_one_line(f.step->expected),
                         in_one_line(shown_reply(c, cell, f.step->text)));
  return {};
}

std::vector<TestCase> probe_cases(const Case& c, std::size_t column, const Variant& variant) {
  const auto steps = failing_steps(c);
  std::vector<TestCase> cases;
  for (const ProbeRow& row : probe_rows(c)) {
    if (row.weak) continue;
    const Counts counts = row.counts[column];
    TestCase t{.klass = "plumb.probe", .name = row.cell, .message = {}};
    if (counts.trials == 0) {
      t.result = TestResult::skipped;
      t.message = "not asked of this variant";
    } else if (counts.failures > 0) {
      t.result = TestResult::failure;
      t.message = fmt::format("failing trials: {}", rate(counts));
      t.text = example_of(c, steps, variant, row.cell);
    }
    cases.push_back(std::move(t));
  }
  return cases;
}

// A culprit fails, what was turned or was ruled out passes, all else was not tested.
std::vector<TestCase> switch_cases(const Case& c) {
  const Findings& f = c.outcome.findings;
  std::vector<TestCase> cases;
  for (std::size_t i = 0; i < c.plan.deployment.switches.size(); ++i) {
    const std::string& name = c.plan.deployment.switches[i].name;
    TestCase t{.klass = "plumb.switch", .name = name, .message = {}};
    const auto culprit = std::find_if(f.verdict.culprits.begin(), f.verdict.culprits.end(),
                                      [&](const Culprit& k) { return k.switch_name == name; });
    bool cleared = f.verdict.verdict == "clean";
    for (const Round& r : f.rounds)
      for (const SwitchRow& row : r.rows) cleared |= row.index == i && is_ruled_out(r, row);
    if (culprit != f.verdict.culprits.end()) {
      t.result = TestResult::failure;
      t.message = fmt::format("{}: side {} ({})", f.verdict.verdict, culprit->side, culprit->word);
    } else if (!cleared) {
      t.result = TestResult::skipped;
      t.message = "neither accused nor ruled out";
    }
    cases.push_back(std::move(t));
  }
  return cases;
}

TestCase verdict_case(const Case& c) {
  const Findings& f = c.outcome.findings;
  TestCase t{.klass = "plumb", .name = "verdict", .message = {}};
  if (c.ended && f.verdict.verdict == "clean") return t;
  const bool found = c.ended && f.verdict.exit_code() == 1;
  t.result = found ? TestResult::failure : TestResult::error;
  t.message = c.ended ? f.verdict.verdict : "the investigation is not finished";
  if (!f.reasons.empty()) t.text = in_one_line(f.reasons.back());
  return t;
}

// A variant over its budget fails, a difference does not.
std::vector<TestCase> distance_cases(const Case& c) {
  const Findings& f = c.outcome.findings;
  if (!f.distance.measured)
    return {{.result = TestResult::skipped,
             .klass = "plumb.distance",
             .name = "D",
             .message = in_one_line("not measured: " + f.distance.why_not)}};
  std::vector<TestCase> cases;
  for (const DistanceRow& row : f.distance.rows) {
    TestCase t{.klass = "plumb.distance",
               .name = row.repeated ? "reference again" : variant_name(c, row.variant),
               .message = {}};
    if (row.word == "over budget") {
      t.result = TestResult::failure;
      t.message = fmt::format("over its declared shift of {:.2g}", row.budget.value_or(0));
    }
    cases.push_back(std::move(t));
  }
  return cases;
}

}  // namespace

std::string report_junit(const Case& c) {
  std::string out = fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plumb {}\">\n",
                                shown(c.plan.deployment.name));
  out += write_suite("verdict", {verdict_case(c)});
  out += write_suite("switches", switch_cases(c));
  out += write_suite("distance", distance_cases(c));
  const auto cols = columns(c);
  for (std::size_t i = 0; i < cols.size(); ++i)
    out += write_suite("probes: " + cols[i].name, probe_cases(c, i, cols[i].variant));
  return out + "</testsuites>\n";
}

}  // namespace plumb::investigator
