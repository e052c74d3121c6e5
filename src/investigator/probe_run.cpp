#include "investigator/probe_run.h"

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "investigator/deployment_check.h"
#include "investigator/log_tail.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWordingTrials = 10;
constexpr int kWordingMisses = 1;
constexpr int kMaxTrials = 1000;
constexpr double kDifferP = 0.05;

// A server that somebody else runs: nothing is launched or stopped.
class RunningWorld final : public World {
 public:
  explicit RunningWorld(const std::string& url) : client_({}, url, {}, {}) {}
  tl::expected<double, LaunchFailure> launch(const Variant&, std::int64_t) override { return 0.0; }
  Reply ask(const Ask& ask, double timeout_s) override { return client_.ask(ask, timeout_s); }
  bool alive(std::string&) override { return true; }
  Result<void> stop() override { return {}; }
  double now_s() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  EndpointClient client_;
};

Counts counts_of(const ProbeTarget& target, const std::string& cell) {
  Counts c;
  for (const TrialRecord& t : target.trials)
    if (t.item.cell == cell && t.wording == target.wording && t.grade != Grade::infrastructure)
      c += {is_failure(t.grade) ? 1 : 0, 1};
  return c;
}

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

std::string xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
      out += '?';
    else
      out += c;
  }
  return out;
}

// For a line on a terminal: no control characters, cut.
std::string on_one_line(const std::string& text) {
  constexpr std::size_t kMostBytes = 120;
  std::string out = printable(text, kMostBytes);
  std::replace(out.begin(), out.end(), '\n', ' ');
  std::replace(out.begin(), out.end(), '\t', ' ');
  return out;
}

bool is_weak(const std::string& cell) {
  const auto probe = probe_of(cell);
  return probe && (*probe)->weak;
}

}  // namespace

ProbeTarget probe_world(World& world, const std::string& name, const std::vector<std::string>& cells,
                        const ProbeOptions& options, const Shape& shape) {
  ProbeTarget target{name, std::nullopt, {}};
  Progress p{.kind = Progress::Kind::launch, .label = name, .text = name};
  const double begin = world.now_s();
  const auto run = [&](const ItemId& item, Wording wording) {
    target.trials.push_back(run_trial(world, item, wording, shape));
    TrialRecord& t = target.trials.back();
    t.at_s = world.now_s() - begin;
    p.kind = Progress::Kind::trial;
    p.cell = item.cell;
    p.grade = t.grade;
    p.elapsed_s = t.at_s;
    ++p.done;
    p.total = std::max(p.total, p.done);
    p.right += t.grade == Grade::right ? 1 : 0;
    if (options.progress) options.progress(p);
    return t.grade;
  };
  if (options.progress) options.progress(p);
  for (const Wording wording : {Wording::phantom, Wording::plain}) {
    int right = 0;
    for (int i = 0; i < kWordingTrials && i - right <= kWordingMisses; ++i)
      right += run({"short", derive_seed(options.seed, fmt::format("wording/{}", i))}, wording) == Grade::right ? 1 : 0;
    if (right < kWordingTrials - kWordingMisses) continue;
    target.wording = wording;
    break;
  }
  p.total = p.done + static_cast<int>(cells.size()) * options.trials;
  if (target.wording)
    for (const std::string& cell : cells)
      for (int i = 0; i < (is_weak(cell) ? 1 : options.trials); ++i)
        run({cell, derive_seed(options.seed, fmt::format("probe/{}/{}", cell, i))}, *target.wording);
  p.kind = Progress::Kind::launch_end;
  if (options.progress) options.progress(p);
  return target;
}

std::vector<std::string> not_covered_by(const ProbeTarget& target, const std::vector<std::string>& cells) {
  std::vector<std::string> open;
  if (!target.wording) return {target.name + ": no wording of the short probe is answered right by 9 in 10"};
  for (const std::string& cell : cells) {
    if (counts_of(target, cell).trials == 0) open.push_back(fmt::format("{}: {}", target.name, cell));
    if (cell != "hit") continue;
    const bool missed = std::any_of(target.trials.begin(), target.trials.end(), [&](const TrialRecord& t) {
      return t.item.cell == cell && std::any_of(t.steps.begin(), t.steps.end(), [](const StepRecord& s) {
               // A request without a reply comes without numbers too.
               return s.wants_hit && s.grade != Grade::infrastructure && s.cached_tokens.value_or(0) <= 0;
             });
    });
    if (missed) open.push_back(target.name + ": hit: partly, the server reports no cached tokens");
  }
  return open;
}

std::string refusal_of(const ProbeTarget& target) {
  const auto unanswered = [](const TrialRecord& t) {
    return t.grade == Grade::infrastructure ||
           (t.grade == Grade::refused && t.steps.back().detail.starts_with("HTTP "));
  };
  if (target.trials.empty() || !std::all_of(target.trials.begin(), target.trials.end(), unanswered)) return {};
  const StepRecord& step = target.trials.front().steps.back();
  return step.text.empty() ? step.detail : step.text;
}

Result<ProbeReport> run_probes(const ProbeOptions& options) {
  if (options.trials < 1 || options.trials > kMaxTrials)
    return error("--trials {}: must be between 1 and {}", options.trials, kMaxTrials);
  auto cells = cells_of(options.suite, options.lengths);
  if (!cells) return tl::unexpected(cells.error());
  ProbeReport report{*cells, {}, {}, {}};
  if (options.deployment) {
    const Deployment& d = *options.deployment;
    if (d.endpoints.empty()) return error("deployment {}: no [[endpoint]] to ask", d.name);
    LaunchedWorld world(d, options.log_folder, {});
    if (const auto ready = world.launch(as_deployed(d), 1); !ready)
      return error("as deployed it does not launch: {}", ready.error().message);
    report.targets.push_back(probe_world(world, "as deployed", *cells, options, shape_of(d)));
    if (auto stopped = world.stop(); !stopped) return tl::unexpected(stopped.error());
  }
  for (const std::string& url : options.urls)
    if (auto checked = check_url(url); !checked) return tl::unexpected(checked.error());
  for (const std::string& url : options.urls) {
    RunningWorld world(url);
    report.targets.push_back(probe_world(world, url, *cells, options, {}));
  }
  if (report.targets.empty()) return error("nothing to probe: give a URL or a deployment file");
  for (const ProbeTarget& t : report.targets)
    if (const std::string refusal = refusal_of(t); !refusal.empty())
      return error("{}: no probe was answered; the first reply: {}", t.name, refusal);
  for (const ProbeTarget& t : report.targets)
    for (std::string& open : not_covered_by(t, *cells)) report.not_covered.push_back(std::move(open));
  if (report.failures() > 0)
    report.next = options.deployment ? "find the switch that does it: plumb investigate with the same deployment file"
                                     : "describe how the server is launched and its switches in a deployment file "
                                       "(docs/deployment.md), then: plumb investigate FILE";
  return report;
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
  int first = 0;
  int second = 0;
  for (const Comparison& c : compared) {
    out += fmt::format("  {:<14} {:>8} {:>13} {:>13} {:>10}\n", c.cell, c.prompts, c.only_first_fails,
                       c.only_second_fails, c.both_fail);
    first += c.only_first_fails;
    second += c.only_second_fails;
  }
  // Where only one of them fails, either is equally likely to when both are alike (McNemar, exact).
  const int either = first + second;
  const double p = either == 0 ? 1 : std::min(1.0, 2 * binomial_cdf(std::min(first, second), either, 0.5));
  out += fmt::format("  {} ({} against {} prompts that only one fails, p = {:.2g})\n",
                     p > kDifferP     ? "no difference shown"
                     : first > second ? "A is worse"
                                      : "B is worse",
                     first, second, p);
  return out;
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
  }
  if (!next.empty()) j["next"] = next;
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ProbeReport::junit() const {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const ProbeTarget& t : targets) {
    out += fmt::format("  <testsuite name=\"{}\">\n", xml(t.name));
    for (const TrialRecord& trial : t.trials) {
      if (trial.wording != t.wording) continue;
      double seconds = 0;
      for (const StepRecord& s : trial.steps) seconds += s.seconds;
      out += fmt::format("    <testcase classname=\"{}\" name=\"seed {}\" time=\"{:.3f}\"", xml(trial.item.cell),
                         trial.item.seed, seconds);
      const auto bad = std::find_if(trial.steps.begin(), trial.steps.end(),
                                    [&](const StepRecord& s) { return s.grade == trial.grade; });
      if (trial.grade == Grade::right) {
        out += "/>\n";
      } else {
        const char* element = trial.grade == Grade::infrastructure ? "error" : "failure";
        out += fmt::format("><{} message=\"{}{}{}\">expected &quot;{}&quot;, got &quot;{}&quot;</{}></testcase>\n",
                           element, grade_name(trial.grade), bad->detail.empty() ? "" : ": ", xml(bad->detail),
                           xml(bad->expected), xml(bad->text), element);
      }
    }
    for (const std::string& open : not_covered)
      if (open.starts_with(t.name))
        out += fmt::format("    <testcase classname=\"coverage\" name=\"{}\"><skipped/></testcase>\n", xml(open));
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace plumb::investigator
