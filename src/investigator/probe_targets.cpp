#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <thread>

#include "investigator/deployment_check.h"
#include "investigator/dial.h"
#include "investigator/launch_command.h"
#include "investigator/probe_run.h"
#include "investigator/source_tree.h"
#include "investigator/variants.h"

namespace plumb::investigator {
namespace {

constexpr int kWordingTrials = 10;
constexpr int kWordingMisses = 1;
constexpr int kMaxTrials = 100000;
constexpr int kMaxInFlight = 1024;

// One connection to a server that runs already: nothing is launched or stopped.
class Connection final : public World {
 public:
  Connection(const EndpointSpec& endpoint, const RequestSpec& request, const std::vector<std::string>& bodies)
      : client_(endpoint, endpoint.url, request, bodies) {}
  tl::expected<double, LaunchFailure> launch(const Variant&, std::int64_t) override { return 0.0; }
  void turn(const Variant&) override {}
  Reply ask(const Ask& ask, double timeout_s) override { return client_.ask(ask, timeout_s); }
  bool alive(std::string&) override { return true; }
  Result<void> stop() override { return {}; }
  double now_s() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  EndpointClient client_;
};

RequestSpec request_of(const ProbeOptions& options) {
  return options.deployment ? options.deployment->request : RequestSpec{};
}

struct Job {
  ItemId item;
  Wording wording;
};

// Runs trials one by one or several at a time, and tells of each.
class Prober {
 public:
  Prober(const std::string& name, const ProbeOptions& options, const Shape& shape, World& clock)
      : options_(options),
        shape_(shape),
        clock_(clock),
        dialler_(shape, request_of(options).answer_tokens),
        begin_s_(clock.now_s()) {
    progress_.kind = Progress::Kind::launch;
    progress_.label = progress_.text = name;
    tell();
  }

  void expect(int trials) { progress_.total = progress_.done + trials; }

  TrialRecord run(World& world, const Job& job) {
    TrialRecord trial = run_trial(world, job.item, job.wording, shape_, std::numeric_limits<double>::infinity(),
                                  {&dialler_, &codes_, request_of(options_)});
    const std::lock_guard lock(mutex_);
    trial.at_s = clock_.now_s() - begin_s_;
    progress_.kind = Progress::Kind::trial;
    progress_.cell = job.item.cell;
    progress_.grade = trial.grade;
    progress_.elapsed_s = trial.at_s;
    ++progress_.done;
    progress_.total = std::max(progress_.total, progress_.done);
    progress_.right += trial.grade == Grade::right ? 1 : 0;
    tell();
    return trial;
  }

  // Each connection takes the next job until none is left; results lie in the order of the jobs.
  std::vector<TrialRecord> run_all(const std::vector<World*>& connections, const std::vector<Job>& jobs) {
    std::vector<TrialRecord> results(jobs.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&](World& world) {
      for (std::size_t i = next++; i < jobs.size(); i = next++) results[i] = run(world, jobs[i]);
    };
    std::vector<std::thread> threads;
    for (std::size_t c = 1; c < connections.size() && c < jobs.size(); ++c)
      threads.emplace_back([&, c] { work(*connections[c]); });
    work(*connections[0]);
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  void end() {
    progress_.kind = Progress::Kind::launch_end;
    tell();
  }

 private:
  void tell() {
    if (options_.progress) options_.progress(progress_);
  }

  const ProbeOptions& options_;
  const Shape& shape_;
  World& clock_;
  Dialler dialler_;
  KnownCodes codes_;
  double begin_s_;
  std::mutex mutex_;
  Progress progress_;
};

// The first wording that is understood, with the trials that show it.
std::optional<Wording> find_wording(Prober& prober, World& world, const ProbeOptions& options,
                                    std::vector<TrialRecord>& trials) {
  if (options.wording) return options.wording;
  for (const Wording wording : {Wording::v4, Wording::plain}) {
    int right = 0;
    for (int i = 0; i < kWordingTrials && i - right <= kWordingMisses; ++i) {
      trials.push_back(
          prober.run(world, {{"short", derive_seed(options.seed, fmt::format("wording/{}", i))}, wording}));
      right += trials.back().grade == Grade::right ? 1 : 0;
    }
    if (right >= kWordingTrials - kWordingMisses) return wording;
  }
  return std::nullopt;
}

ProbeTarget probe_worlds(const std::vector<World*>& connections, const std::string& name,
                         const std::vector<std::string>& cells, const ProbeOptions& options, const Shape& shape) {
  ProbeTarget target{name, std::nullopt, {}};
  Prober prober(name, options, shape, *connections[0]);
  target.wording = find_wording(prober, *connections[0], options, target.trials);
  std::vector<Job> jobs;
  for (const std::string& cell : cells)
    for (int i = 0; i < (is_weak(cell) ? 1 : options.trials) && target.wording; ++i)
      jobs.push_back({{cell, derive_seed(options.seed, fmt::format("probe/{}/{}", cell, i))}, *target.wording});
  prober.expect(static_cast<int>(cells.size()) * options.trials);
  for (TrialRecord& trial : prober.run_all(connections, jobs)) target.trials.push_back(std::move(trial));
  prober.end();
  return target;
}

// A running endpoint, asked with `connections` at a time.
ProbeTarget probe_endpoint(EndpointSpec endpoint, int connections, const Deployment& deployment,
                           const std::string& name, const std::vector<std::string>& cells,
                           const ProbeOptions& options) {
  endpoint.requests_per_min /= connections;  // each connection keeps its share
  const auto bodies = request_bodies(deployment, as_deployed(deployment));
  const auto connect = [&] { return std::make_unique<Connection>(endpoint, deployment.request, bodies); };
  return probe_connections(connect, connections, name, cells, options, shape_of(deployment));
}

Result<ProbeTarget> probe_deployment(const Deployment& deployment, const std::vector<std::string>& cells,
                                     const ProbeOptions& options) {
  if (deployment.endpoints.empty()) return error("deployment {}: no [[endpoint]] to ask", deployment.name);
  const Variant deployed = as_deployed(deployment);
  const auto launch = launch_variant(
      deployment, deployed,
      {.log_folder = options.log_folder, .launch_id = 1, .progress = {}, .tree = options.log_folder / "tree"});
  if (!launch) return error("as deployed it does not launch: {}", launch.error().message);
  const EndpointSpec& endpoint = (*launch)->endpoints()[endpoint_of(deployment, deployed)];
  const int connections = options.in_flight > 0 ? options.in_flight : endpoint.max_in_flight;
  ProbeTarget target = probe_endpoint(endpoint, connections, deployment, "as deployed", cells, options);
  if (auto stopped = (*launch)->stop(); !stopped) return tl::unexpected(stopped.error());
  if (auto removed = remove_source_tree(options.log_folder / "tree"); !removed) return tl::unexpected(removed.error());
  return target;
}

}  // namespace

ProbeTarget probe_world(World& world, const std::string& name, const std::vector<std::string>& cells,
                        const ProbeOptions& options, const Shape& shape) {
  return probe_worlds({&world}, name, cells, options, shape);
}

ProbeTarget probe_connections(const std::function<std::unique_ptr<World>()>& connect, int connections,
                              const std::string& name, const std::vector<std::string>& cells,
                              const ProbeOptions& options, const Shape& shape) {
  std::vector<std::unique_ptr<World>> worlds;
  std::vector<World*> pointers;
  for (int i = 0; i < connections; ++i) {
    worlds.push_back(connect());
    pointers.push_back(worlds.back().get());
  }
  return probe_worlds(pointers, name, cells, options, shape);
}

std::vector<std::string> not_covered_by(const ProbeTarget& target, const std::vector<std::string>& cells) {
  std::vector<std::string> open;
  if (!target.wording) return {target.name + ": no wording of the short probe is answered right by 9 in 10"};
  for (const std::string& cell : cells) {
    if (counts_of(target, cell).trials == 0) open.push_back(fmt::format("{}: {}", target.name, cell));
    if (cell == "boundary")
      if (const auto why = why_lengths_differ(target.trials, cell)) open.push_back(target.name + ": " + *why);
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
  if (options.in_flight < 0 || options.in_flight > kMaxInFlight)
    return error("--in-flight {}: must be between 1 and {}", options.in_flight, kMaxInFlight);
  auto cells = cells_of(options.suite, options.lengths);
  if (!cells) return tl::unexpected(cells.error());
  ProbeReport report{*cells, {}, {}, {}};
  if (options.deployment) {
    auto target = probe_deployment(*options.deployment, *cells, options);
    if (!target) return tl::unexpected(target.error());
    report.targets.push_back(std::move(*target));
  }
  for (const std::string& url : options.urls)
    if (auto checked = check_url(url); !checked) return tl::unexpected(checked.error());
  if (!options.key_env.empty())
    if (auto key = value_from_environment(options.key_env); !key) return error("--key-env: {}", key.error().message);
  for (const std::string& url : options.urls) {
    EndpointSpec endpoint;
    endpoint.url = url;
    endpoint.key_env = options.key_env;
    report.targets.push_back(probe_endpoint(endpoint, std::max(options.in_flight, 1), {}, url, *cells, options));
  }
  if (report.targets.empty()) return error("nothing to probe: give a URL or a deployment file");
  for (const ProbeTarget& t : report.targets)
    if (const std::string refusal = refusal_of(t); !refusal.empty())
      return error("{}: no probe was answered; the first reply: {}", t.name, refusal);
  for (const ProbeTarget& t : report.targets)
    for (std::string& open : not_covered_by(t, *cells)) report.not_covered.push_back(std::move(open));
  if (report.targets.size() == 2 && report.comparison().empty())
    report.not_covered.emplace_back("the comparison: the two servers do not understand the same wording");
  if (report.failures() > 0)
    report.next = options.deployment ? "find the switch that does it: plumb investigate with the same deployment file"
                                     : "describe how the server is launched and its switches in a deployment file "
                                       "(docs/deployment.md), then: plumb investigate FILE";
  return report;
}

}  // namespace plumb::investigator
