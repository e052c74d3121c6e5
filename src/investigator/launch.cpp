#include "investigator/launch.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/process.h"
#include "base/process_tree.h"
#include "investigator/deployment_check.h"
#include "investigator/gpu_memory.h"
#include "investigator/http_client.h"
#include "investigator/launch_command.h"
#include "investigator/local_launch.h"
#include "investigator/log_tail.h"
#include "investigator/readiness.h"
#include "investigator/secrets.h"
#include "investigator/source_tree.h"
#include "investigator/supervisor.h"

namespace plumb::investigator {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = LaunchFailure::Kind;

constexpr int kMaxPortTries = 3;  // launches with other ports when somebody takes one of ours
constexpr int kShownLogLines = 50;
constexpr double kFirstLookS = 0.02;
constexpr double kSlowestLookS = 0.2;
constexpr double kLookGrowth = 1.3;
constexpr double kHealthTimeoutS = 5;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Somebody else listens on a port; `ours` if we chose the port and may choose another.
struct PortTaken {
  bool chosen = false;
  std::string message;
};

tl::unexpected<LaunchFailure> failed(Kind kind, std::string message) {
  return tl::unexpected(LaunchFailure{kind, without_secrets(message)});
}

// What has to be right before a process, or an endpoint that belongs to none, counts as ready.
struct Gate {
  std::string name;  // for messages
  int process = -1;  // -1: an endpoint with a fixed url
  int port = 0;      // that one of our processes must listen on; 0: none, or on another machine
  bool chosen_port = true;
  std::optional<LogWatch> log;
  std::vector<std::function<Answer(double timeout_s)>> questions;
  bool started = false, ready = false, refused = false;
  std::string last = "it has not been looked at";  // the last thing that was not right
  std::size_t asked = 0;                           // questions answered as they should
  std::future<Answer> answer;                      // to questions[asked], when asked
};

}  // namespace

// One attempt to launch: holds what is needed until everything is ready.
class LaunchStart {
 public:
  LaunchStart(const Deployment& deployment, const Variant& variant, const LaunchOptions& options)
      : deployment_(deployment), variant_(variant), options_(options), launch_(std::make_unique<LocalLaunch>()) {}

  tl::expected<void, LaunchFailure> prepare();
  tl::expected<void, LaunchFailure> wait_until_ready();
  std::optional<PortTaken> port_taken() const { return taken_; }
  std::unique_ptr<LocalLaunch> take() { return std::move(launch_); }

 private:
  tl::expected<void, LaunchFailure> choose_ports();
  tl::expected<void, LaunchFailure> start_supervisor();
  tl::expected<SupervisedProcess, LaunchFailure> prepare_process(const ProcessSpec& process);
  tl::expected<int, LaunchFailure> open_log(const std::string& process);
  tl::expected<void, LaunchFailure> prepare_tree();
  bool has_fixed_port(const EndpointSpec& endpoint) const;
  tl::expected<void, LaunchFailure> fill_endpoints();
  tl::expected<void, LaunchFailure> nobody_answers_yet();
  tl::expected<void, LaunchFailure> measure_memory();
  std::string fill(const std::string& text) const {
    return fill_ports(text, [&](const std::string& name) { return std::to_string(launch_->fill_.ports.at(name)); });
  }
  void make_gates();
  void add_generation(Gate& gate, std::size_t endpoint);
  tl::expected<void, LaunchFailure> start_what_may_start();
  tl::expected<void, LaunchFailure> take_event(double timeout_s);
  tl::expected<void, LaunchFailure> look(Gate& gate);
  bool is_ours(const Gate& gate);
  bool all_ready() const {
    return std::all_of(gates_.begin(), gates_.end(), [](const Gate& gate) { return gate.ready; });
  }
  double left_s() const { return deployment_.start_timeout_s - seconds_since(start_); }
  LaunchFailure not_ready() const;
  LaunchFailure somebody_elses_port() const { return {Kind::stale, taken_->message}; }
  void say(const std::string& text) const {
    if (options_.progress) options_.progress(text);
  }

  const Deployment& deployment_;
  const Variant& variant_;
  const LaunchOptions& options_;
  std::vector<Gate> gates_;  // before launch_: a question to a server that never answers ends with the server
  std::unique_ptr<LocalLaunch> launch_;
  std::optional<PortTaken> taken_;
  Clock::time_point start_ = Clock::now();
};

tl::expected<void, LaunchFailure> LaunchStart::prepare() {
  keep_secrets_of(deployment_);
  for (const EndpointSpec& endpoint : deployment_.endpoints)
    if (!endpoint.key_env.empty() && std::getenv(endpoint.key_env.c_str()) == nullptr)
      return failed(Kind::environment, fmt::format("endpoint {}: key_env {} is not set in the environment",
                                                   endpoint.url, endpoint.key_env));
  if (auto tree = prepare_tree(); !tree) return tree;
  if (auto ports = choose_ports(); !ports) return ports;
  if (auto endpoints = fill_endpoints(); !endpoints) return endpoints;
  if (auto nobody = nobody_answers_yet(); !nobody) return nobody;
  if (auto memory = measure_memory(); !memory) return memory;
  if (!deployment_.processes.empty())
    if (auto supervisor = start_supervisor(); !supervisor) return supervisor;
  make_gates();
  return {};
}

// The working tree of [source] with the patches of the variant.
tl::expected<void, LaunchFailure> LaunchStart::prepare_tree() {
  if (deployment_.source.repository.empty()) return {};
  if (options_.tree.empty())
    return failed(Kind::environment, "[source] needs a folder for its working tree, and this command has none");
  const auto ready = prepare_source_tree(deployment_, variant_, options_.tree,
                                         options_.log_folder / fmt::format("{}-build.log", options_.launch_id));
  if (!ready) return failed(ready.error().of_variant ? Kind::infeasible : Kind::environment, ready.error().message);
  launch_->fill_.source = std::filesystem::absolute(options_.tree).string();
  return {};
}

tl::expected<void, LaunchFailure> LaunchStart::choose_ports() {
  static std::atomic<int> launches{0};
  launch_->fill_.instance = fmt::format("plumb-{}-{}", getpid(), ++launches);
  auto& ports = launch_->fill_.ports;
  for (const std::string& text : texts_with_marks(deployment_))
    for (const std::string& name : port_names(text).value_or(std::vector<std::string>{})) ports[name] = 0;
  const std::vector<int> free = free_ports(ports.size());
  if (free.size() != ports.size())
    return failed(Kind::environment, fmt::format("no {} free TCP ports on 127.0.0.1", ports.size()));
  std::size_t next = 0;
  for (auto& [name, port] : ports) port = free[next++];
  for (const ProcessSpec& process : deployment_.processes)
    if (ports.count(process.name) > 0 && listens_here(process)) launch_->ports_here_.push_back(ports[process.name]);

  if (deployment_.processes.empty()) return {};
  for (const EndpointSpec& endpoint : deployment_.endpoints) {
    if (!has_fixed_port(endpoint)) continue;
    const auto port = port_of_url(endpoint.url);
    if (!port) return failed(Kind::environment, port.error().message);
    launch_->fixed_ports_.push_back(*port);
    if (const auto listeners = listening_sockets(*port); !listeners.empty())
      return failed(Kind::stale,
                    fmt::format("port {} of endpoint {} is in use before the launch: {} listens there; stop it "
                                "or choose another port",
                                *port, endpoint.url, describe_holder(listeners[0])));
  }
  return {};
}

// Written in the file, on this machine.
bool LaunchStart::has_fixed_port(const EndpointSpec& endpoint) const {
  return port_names(endpoint.url).value_or(std::vector<std::string>{}).empty() && is_local_url(endpoint.url);
}

tl::expected<void, LaunchFailure> LaunchStart::fill_endpoints() {
  for (EndpointSpec endpoint : deployment_.endpoints) {
    endpoint.url = fill(endpoint.url);
    endpoint.model = fill_instances(endpoint.model, launch_->fill_);
    launch_->urls_.push_back(endpoint.url);
    for (auto& [name, value] : endpoint.headers) {
      const auto filled = fill_from_environment(value);
      if (!filled)
        return failed(Kind::environment,
                      fmt::format("endpoint {}: header {}: {}", endpoint.url, name, filled.error().message));
      value = *filled;
    }
    launch_->endpoints_.push_back(std::move(endpoint));
  }
  return {};
}

// On another machine nobody can look up who listens: whoever answers there before the launch is not ours.
tl::expected<void, LaunchFailure> LaunchStart::nobody_answers_yet() {
  constexpr double kTimeoutS = 2;
  if (deployment_.processes.empty()) return {};
  for (const ProcessSpec& process : deployment_.processes) {
    const auto port = launch_->fill_.ports.find(process.name);
    const std::string host = host_of(process).substr(host_of(process).rfind('@') + 1);
    if (listens_here(process) || host.empty() || port == launch_->fill_.ports.end()) continue;
    const std::string url = fmt::format("http://{}:{}", host, port->second);
    if (!HttpClient(url, kTimeoutS).get("/")) continue;
    taken_ = PortTaken{true, fmt::format("process {}: somebody answers at {} before the launch", process.name, url)};
    return tl::unexpected(somebody_elses_port());
  }
  return {};
}

tl::expected<void, LaunchFailure> LaunchStart::measure_memory() {
  for (const ProcessSpec& process : deployment_.processes) {
    if (!process.wait_gpu_memory) continue;
    auto used = gpu_memory_used(process);
    if (!used) return failed(Kind::environment, used.error().message);
    launch_->memory_before_.emplace_back(process, std::move(*used));
  }
  return {};
}

tl::expected<int, LaunchFailure> LaunchStart::open_log(const std::string& process) {
  LogFile log;
  log.path = options_.log_folder / fmt::format("{}-{}.log", options_.launch_id, process);
  std::error_code code;
  std::filesystem::create_directories(options_.log_folder, code);
  const int opened = open(log.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (opened < 0) return failed(Kind::environment, fmt::format("log {}: {}", log.path.string(), strerror(errno)));
  if (const auto size = std::filesystem::file_size(log.path, code); !code) log.begin = size;
  launch_->names_.push_back(process);
  launch_->logs_.push_back(log);
  return opened;
}

tl::expected<SupervisedProcess, LaunchFailure> LaunchStart::prepare_process(const ProcessSpec& process) {
  const auto refused = [&](const std::string& why) {
    return failed(Kind::environment, fmt::format("process {}: {}", process.name, why));
  };
  const auto rendered = render_process(deployment_, variant_, process, launch_->fill_);
  if (!rendered) return failed(Kind::environment, rendered.error().message);
  auto program = Program::prepare(rendered->command);
  if (!program) return refused(program.error().message);
  SupervisedProcess supervised{std::move(*program), -1, process.stop_signal, process.stop_grace_s, std::nullopt};
  if (rendered->cleanup) {
    auto cleanup = Program::prepare(*rendered->cleanup);
    if (!cleanup) return refused(cleanup.error().message);
    supervised.cleanup.emplace(std::move(*cleanup));
  }
  const auto log = open_log(process.name);
  if (!log) return tl::unexpected(log.error());
  supervised.log = *log;
  if (!has_secrets()) return supervised;
  auto scrubbed = ScrubbedLog::open(*log);
  if (!scrubbed) return refused(scrubbed.error().message);
  supervised.log = scrubbed->writer();
  launch_->scrubbed_.push_back(std::move(*scrubbed));
  return supervised;
}

tl::expected<void, LaunchFailure> LaunchStart::start_supervisor() {
  std::vector<SupervisedProcess> processes;
  for (const ProcessSpec& spec : deployment_.processes) {
    auto process = prepare_process(spec);
    if (!process) {
      for (const SupervisedProcess& opened : processes) close(opened.log);
      return tl::unexpected(process.error());
    }
    processes.push_back(std::move(*process));
  }
  auto supervisor = Supervisor::start(std::move(processes));
  if (!supervisor) return failed(Kind::environment, supervisor.error().message);
  launch_->supervisor_.emplace(std::move(*supervisor));
  launch_->supervised_ = true;
  return {};
}

void LaunchStart::add_generation(Gate& gate, std::size_t endpoint) {
  gate.questions.push_back([url = launch_->urls_[endpoint], spec = launch_->endpoints_[endpoint],
                            temperature = deployment_.request.temperature](double timeout_s) {
    return ask_generation(url, spec, temperature, timeout_s);
  });
}

void LaunchStart::make_gates() {
  for (std::size_t i = 0; i < deployment_.processes.size(); ++i) {
    const ProcessSpec& process = deployment_.processes[i];
    Gate& gate = gates_.emplace_back();
    gate.name = "process " + process.name;
    gate.process = static_cast<int>(i);
    gate.log.emplace(launch_->logs_[i].path, launch_->logs_[i].begin, process.ready_log_regex);
    const auto port = launch_->fill_.ports.find(process.name);
    // Only our own children's sockets can be looked up; a container's processes are its daemon's.
    if (port != launch_->fill_.ports.end() && process.via == "local") gate.port = port->second;
    if (!process.ready_http.empty())
      gate.questions.push_back(
          [url = fmt::format("http://{}:{}", host_of(process).substr(host_of(process).rfind('@') + 1),
                             launch_->fill_.ports.at(process.name)),
           path = process.ready_http](double s) { return ask_health(url, path, std::min(s, kHealthTimeoutS)); });
    for (std::size_t e = 0; e < deployment_.endpoints.size() && process.ready_generate; ++e)
      if (const auto names = port_names(deployment_.endpoints[e].url);
          names && !names->empty() && (*names)[0] == process.name)
        add_generation(gate, e);
  }
  const bool generate =
      deployment_.processes.empty() || std::any_of(deployment_.processes.begin(), deployment_.processes.end(),
                                                   [](const ProcessSpec& process) { return process.ready_generate; });
  for (std::size_t e = 0; e < deployment_.endpoints.size(); ++e) {
    if (!port_names(deployment_.endpoints[e].url).value_or(std::vector<std::string>{}).empty()) continue;
    const bool here = is_local_url(deployment_.endpoints[e].url) &&
                      std::all_of(deployment_.processes.begin(), deployment_.processes.end(),
                                  [](const ProcessSpec& process) { return process.via == "local"; });
    Gate& gate = gates_.emplace_back();
    gate.name = "endpoint " + deployment_.endpoints[e].url;
    gate.chosen_port = false;
    if (!deployment_.processes.empty() && here) gate.port = port_of_url(deployment_.endpoints[e].url).value_or(0);
    if (generate) add_generation(gate, e);
  }
}

tl::expected<void, LaunchFailure> LaunchStart::start_what_may_start() {
  const auto is_ready = [&](const std::string& name) {
    return std::any_of(gates_.begin(), gates_.end(), [&](const Gate& gate) {
      return gate.process >= 0 && gate.ready && launch_->names_[static_cast<std::size_t>(gate.process)] == name;
    });
  };
  for (Gate& gate : gates_) {
    if (gate.started) continue;
    if (gate.process < 0) {
      // An endpoint of no process may need them all.
      gate.started =
          std::all_of(gates_.begin(), gates_.end(), [](const Gate& other) { return other.process < 0 || other.ready; });
      continue;
    }
    const ProcessSpec& spec = deployment_.processes[static_cast<std::size_t>(gate.process)];
    if (!std::all_of(spec.after.begin(), spec.after.end(), is_ready)) continue;
    say("starting " + spec.name);
    if (auto asked = launch_->supervisor_->launch(gate.process); !asked)
      return failed(Kind::environment, asked.error().message);
    gate.started = true;
  }
  return {};
}

// Waits for a report of the supervisor, at most timeout_s; fails when a process could not be started or has ended.
tl::expected<void, LaunchFailure> LaunchStart::take_event(double timeout_s) {
  if (!launch_->supervisor_) {
    std::this_thread::sleep_for(std::chrono::duration<double>(timeout_s));
    return {};
  }
  for (auto event = launch_->take_event(timeout_s); event; event = launch_->take_event(0)) {
    if (event->kind == SupervisorEvent::Kind::started || event->kind == SupervisorEvent::Kind::cleaned) continue;
    const std::size_t process = static_cast<std::size_t>(event->process);
    if (event->kind == SupervisorEvent::Kind::exec_failed)
      return failed(Kind::environment, fmt::format("process {}: cannot execute {}: {}", launch_->names_[process],
                                                   deployment_.processes[process].command[0], strerror(event->value)));
    // It may have ended because somebody else was faster on its port.
    for (const Gate& gate : gates_)
      if (gate.started && !is_ours(gate)) return tl::unexpected(somebody_elses_port());
    return failed(Kind::infeasible, "before all was ready, " + launch_->describe_end(kShownLogLines));
  }
  if (launch_->supervisor_->gone()) return failed(Kind::environment, "the supervisor of the launch was killed");
  return {};
}

// Whether nobody but our processes listens on the gate's port; otherwise taken_ says who does.
bool LaunchStart::is_ours(const Gate& gate) {
  if (gate.port == 0) return true;
  const auto listeners = listening_sockets(gate.port);
  if (listeners.empty()) return true;
  const auto tree = process_tree(launch_->supervisor_->guard_pid());
  for (const std::uint64_t inode : listeners) {
    if (holds_socket(tree, inode)) continue;
    const auto still = listening_sockets(gate.port);
    if (std::find(still.begin(), still.end(), inode) == still.end()) continue;  // closed while we looked
    taken_ =
        PortTaken{gate.chosen_port, fmt::format("{}: {} listens on its port {}, not a process of this launch: stop it "
                                                "or choose another port",
                                                gate.name, describe_holder(inode), gate.port)};
    return false;
  }
  return true;
}

tl::expected<void, LaunchFailure> LaunchStart::look(Gate& gate) {
  if (gate.log && !gate.log->found()) {
    gate.last = "no line of its log matches ready.log yet";
    return {};
  }
  if (gate.port != 0 && listening_sockets(gate.port).empty()) {
    gate.last = fmt::format("nobody listens on its port {}", gate.port);
    return {};
  }
  if (!is_ours(gate)) return tl::unexpected(somebody_elses_port());
  if (gate.answer.valid()) {
    if (gate.answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
    const Answer answer = gate.answer.get();
    if (answer.right) ++gate.asked;
    gate.last = answer.what;
    gate.refused = answer.refused;
  }
  if (gate.asked < gate.questions.size()) {
    gate.answer = std::async(std::launch::async, gate.questions[gate.asked], std::max(0.1, left_s()));
    return {};
  }
  gate.ready = true;
  say(fmt::format("{} is ready after {:.1f} s", gate.name, seconds_since(start_)));
  return {};
}

LaunchFailure LaunchStart::not_ready() const {
  std::string message = fmt::format("not ready after {} s:", deployment_.start_timeout_s);
  bool refused = false;
  const char* gap = " ";
  for (const Gate& gate : gates_) {
    if (gate.ready || !gate.started) continue;
    refused |= gate.refused;
    const bool waiting = gate.answer.valid();
    message += fmt::format("{}{}: {}{}", gap, gate.name,
                           waiting && !gate.refused ? "a question is still not answered, before it " : "", gate.last);
    gap = "; ";
    if (gate.process < 0) continue;
    const LogFile& log = launch_->logs_[static_cast<std::size_t>(gate.process)];
    const std::string tail = tail_of_log(log.path, log.begin, kShownLogLines);
    message += tail.empty() ? fmt::format("; it wrote nothing to its log {}", log.path.string())
                            : fmt::format("; the last lines of its log {}:\n{}\n", log.path.string(), tail);
    if (!tail.empty()) gap = "";
  }
  message += *gap == '\0' ? "" : "; ";
  message +=
      refused ? "it refuses what it is asked, and waiting does not change that: correct ready.http, or the endpoint's "
                "url, api and model"
              : "raise start_timeout_s if it only needs longer";
  return {Kind::not_ready, without_secrets(message)};
}

tl::expected<void, LaunchFailure> LaunchStart::wait_until_ready() {
  start_ = Clock::now();
  for (double step_s = kFirstLookS; !all_ready(); step_s = std::min(step_s * kLookGrowth, kSlowestLookS)) {
    if (auto started = start_what_may_start(); !started) return started;
    if (auto event = take_event(step_s); !event) return event;
    for (Gate& gate : gates_)
      if (gate.started && !gate.ready)
        if (auto looked = look(gate); !looked) return looked;
    if (!all_ready() && left_s() <= 0) return tl::unexpected(not_ready());
  }
  launch_->ready_s_ = seconds_since(start_);
  return {};
}

tl::expected<std::unique_ptr<Launch>, LaunchFailure> launch_variant(const Deployment& deployment,
                                                                    const Variant& variant,
                                                                    const LaunchOptions& options) {
  CHECK(variant.size() == deployment.switches.size());
  if (const auto allowed = check_variant(deployment, variant); !allowed)
    return failed(Kind::infeasible, allowed.error().message);
  for (int attempt = 1;; ++attempt) {
    LaunchStart start(deployment, variant, options);
    auto ready = start.prepare();
    if (ready) ready = start.wait_until_ready();
    auto launch = start.take();
    if (ready) return launch;
    if (auto stopped = launch->end_processes(); !stopped) ready.error().message += "; " + stopped.error().message;
    if (!start.port_taken() || !start.port_taken()->chosen || attempt == kMaxPortTries)
      return tl::unexpected(ready.error());
    if (options.progress) options.progress("somebody took a port of ours, trying others");
  }
}

}  // namespace plumb::investigator
