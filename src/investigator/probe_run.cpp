#include "investigator/probe_run.h"

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "investigator/deployment_check.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWordingTrials = 10;
constexpr int kWordingMisses = 1;
constexpr int kMaxTrials = 1000;

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
    if (missed) open.push_back(target.name + ": hit (no cached tokens reported)");
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
  ProbeReport report{*cells, {}, {}};
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
  for (const std::string& open : not_covered) out += "not covered: " + open + "\n";
  return out;
}

std::string ProbeReport::json() const {
  Json j{{"targets", Json::array()}, {"failures", failures()}, {"not_covered", not_covered}};
  for (const ProbeTarget& t : targets) {
    Json rows = Json::array();
    for (const std::string& cell : cells) {
      const Counts c = counts_of(t, cell);
      const Interval i = interval_95(c.failures, c.trials);
      rows.push_back({{"probe", cell},
                      {"failures", c.failures},
                      {"trials", c.trials},
                      {"low_95", i.low},
                      {"high_95", i.high},
                      {"seconds", mean_seconds(t, cell)}});
    }
    j["targets"].push_back(
        {{"name", t.name}, {"wording", t.wording ? Json(wording_name(*t.wording)) : Json()}, {"probes", rows}});
  }
  return j.dump(2) + "\n";
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
        out += fmt::format("><{} message=\"{}: {}\">expected {}, got {}</{}></testcase>\n", element,
                           grade_name(trial.grade), xml(bad->detail), xml(bad->expected), xml(bad->text), element);
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
