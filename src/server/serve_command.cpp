#include "server/serve_command.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "server/command_line.h"
#include "server/http_server.h"

namespace plumb::server {
namespace {

constexpr int kExitClean = 0;
constexpr int kExitError = 3;
constexpr std::chrono::milliseconds kStopGrace{10000};
constexpr std::int64_t kMostConnections = 1 << 20;
constexpr std::int64_t kOtherDescriptors = 64;  // of the model's files, the log and the system
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// Only async-signal-safe calls are allowed in a handler: it wakes the main thread through this descriptor.
volatile sig_atomic_t stop_descriptor = -1;

void on_stop_signal(int) {
  const int saved = errno;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_descriptor, &one, sizeof one);
  errno = saved;
}

// While it lives, SIGTERM and SIGINT end wait() instead of the process; after the first they have their old effect
// again.
class StopSignal {
 public:
  StopSignal() : descriptor_(::eventfd(0, EFD_CLOEXEC)) {
    CHECK(descriptor_ >= 0);
    stop_descriptor = descriptor_;
    struct sigaction action{};
    action.sa_handler = &on_stop_signal;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i) CHECK(sigaction(kSignals[i], &action, &old_[i]) == 0);
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal() {
    restore();
    ::close(descriptor_);
  }

  void wait() {
    std::uint64_t count = 0;
    while (::read(descriptor_, &count, sizeof count) < 0) CHECK(errno == EINTR);
    restore();
  }

 private:
  static constexpr std::array kSignals{SIGTERM, SIGINT};

  void restore() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
  }

  const int descriptor_;
  std::array<struct sigaction, kSignals.size()> old_{};
};

// Twice the connections may be open for a moment: those beyond the limit are told so. A system that does not allow so
// many is told about, for then new clients wait instead.
void allow_descriptors(std::int64_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(count)) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(count));
  const bool raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  if (!raised || limit.rlim_cur < static_cast<rlim_t>(count))
    spdlog::warn("the system allows fewer than {} open files: with more connections new ones will wait", count);
}

std::shared_ptr<spdlog::logger> stderr_logger() {
  auto logger = std::make_shared<spdlog::logger>("plumb", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%l: %v");
  logger->flush_on(spdlog::level::info);
  return logger;
}

// "attention.split_k=on prefix_cache=off"
std::string shown_settings(const Settings& settings) {
  std::string out;
  for (std::size_t i = 0; i < kSwitchCount; ++i)
    out += fmt::format("{}{}={}", i == 0 ? "" : " ", kSwitches[i].name, settings.describe(i));
  return out;
}

std::vector<std::pair<std::string, std::string>> shown_arguments(const ServeOptions& options) {
  const auto number = [](std::int64_t x) { return x == 0 ? std::string("auto") : std::to_string(x); };
  return {{"model", options.model},
          {"host", options.host},
          {"port", std::to_string(options.port)},
          {"role", options.role},
          {"backend", options.backend},
          {"set", fmt::format("{}", fmt::join(options.sets, " "))},
          {"max_logprobs", std::to_string(options.max_logprobs)},
          {"served_model_name", options.served_model_name.value_or("")},
          {"max_connections", std::to_string(options.max_connections)},
          {"threads", number(options.threads)},
          {"max_context", number(options.max_context)},
          {"chunk_tokens", number(options.chunk_tokens)},
          {"max_running", number(options.max_running)},
          {"max_queue", number(options.max_queue)},
          {"pool_tokens", number(options.pool_tokens)}};
}

Result<void> check(const ServeOptions& options) {
  if (options.role == "prefill" || options.role == "decode")
    return error("--role {}: not built yet; only unified is", options.role);
  if (options.role != "unified") return error("--role {}: there are unified, prefill and decode", options.role);
  if (options.port < 0 || options.port > 65535) return error("--port {}: must be between 0 and 65535", options.port);
  if (options.max_connections < 1 || options.max_connections > kMostConnections)
    return error("--max-connections {}: must be between 1 and {}", options.max_connections, kMostConnections);
  if (options.max_logprobs < -1 || options.max_logprobs > kMaxInt)
    return error("--max-logprobs {}: must be between -1 and {}", options.max_logprobs, kMaxInt);
  if (options.served_model_name == "") return error("--served-model-name: is empty; give a name, or leave it out");
  return {};
}

Result<void> serve(const ServeOptions& options, const ModelLoader& load) {
  if (const auto valid = check(options); !valid) return valid;
  const auto settings = launch_settings(options.sets);
  if (!settings) return tl::unexpected(settings.error());
  auto model = load(options, *settings);
  if (!model) return tl::unexpected(model.error());
  if (const auto known = settings->check_layers(model->info.layers); !known)
    return error("--set: {}", known.error().message);

  StopSignal signal;
  HttpOptions http;
  http.host = options.host;
  http.port = static_cast<std::uint16_t>(options.port);
  http.max_connections = static_cast<std::size_t>(options.max_connections);
  allow_descriptors(2 * options.max_connections + kOtherDescriptors);
  ServiceOptions service;
  service.limits.max_logprobs = options.max_logprobs;
  service.limits.settings = *settings;
  service.limits.layers = model->info.layers;
  service.limits.max_choices = std::min(service.limits.max_choices, static_cast<std::size_t>(model->info.max_queue));
  service.served_model_name = options.served_model_name;
  service.launch_args = shown_arguments(options);
  const auto server = HttpServer::start(http, std::move(service), *model->generator, *model->encoding, model->info);
  if (!server) return tl::unexpected(server.error());
  spdlog::info("serving {} (hash {}, context {} tokens) on http://{}:{} with {}",
               options.served_model_name.value_or(model->info.name), model->info.hash, model->info.max_context,
               options.host, (*server)->port(), shown_settings(*settings));
  signal.wait();
  spdlog::info("stopping");
  (*server)->stop(kStopGrace);
  return {};
}

}  // namespace

void add_serve_options(CLI::App& app, ServeOptions& options) {
  app.add_option("MODEL", options.model, "folder of the checkpoint")->required();
  app.add_option("--host", options.host, "address to listen on")->capture_default_str();
  takes_whole(app.add_option("--port", options.port, "port to listen on; 0: any free one")->capture_default_str(), 0,
              65535);
  app.add_option("--role", options.role, "unified: prefill and decode in one server, the only one so far")
      ->capture_default_str();
  takes_backend(app.add_option("--backend", options.backend, "who computes: cpu (f32) or ref (f64, the meaning)")
                    ->capture_default_str());
  app.add_option("--set", options.sets, "a switch of the launch: NAME=on|off[@LAYERS]; may be repeated")
      ->allow_extra_args(false);
  takes_whole(
      app.add_option("--max-logprobs", options.max_logprobs, "largest k of log-probabilities; -1: the vocabulary")
          ->capture_default_str(),
      -1, kMaxInt);
  app.add_option("--served-model-name", options.served_model_name,
                 "model id; requests that name another one are refused with 404. Without it any name is taken");
  takes_whole(app.add_option("--max-connections", options.max_connections, "open connections; more get a 503")
                  ->capture_default_str(),
              1, kMostConnections);
  takes_whole(app.add_option("--threads", options.threads, "threads that compute; 0: all cores"), 0, kMaxInt);
  takes_whole(app.add_option("--max-context", options.max_context,
                             "tokens of a request, prompt and completion; 0: as many as the model's config allows"),
              0, kMaxInt64);
  takes_whole(app.add_option("--chunk-tokens", options.chunk_tokens, "prompt tokens of one pass; 0: the default"), 0,
              kMaxInt64);
  takes_whole(app.add_option("--max-running", options.max_running, "sequences computed together; 0: the default"), 0,
              kMaxInt);
  takes_whole(app.add_option("--max-queue", options.max_queue, "sequences that may wait; 0: the default"), 0, kMaxInt);
  takes_whole(app.add_option("--pool-tokens", options.pool_tokens, "tokens whose state is kept; 0: twice the context"),
              0, kMaxInt64);
}

Result<Settings> launch_settings(const std::vector<std::string>& sets, Settings settings) {
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos) return error("--set {}: write NAME=on, NAME=off or NAME=on@LAYERS", set);
    if (const auto done = settings.set(set.substr(0, equals), set.substr(equals + 1)); !done)
      return error("--set {}: {}", set, done.error().message);
  }
  return settings;
}

int run_serve(const ServeOptions& options, const ModelLoader& load) {
  std::signal(SIGPIPE, SIG_IGN);  // nobody reading the log any more is no reason to end
  spdlog::set_default_logger(stderr_logger());
  try {
    const auto served = serve(options, load);
    if (served) return kExitClean;
    fmt::print(stderr, "plumb: {}\n", served.error().message);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr,
               "plumb: out of memory: give the process more, or lower --pool-tokens, --max-running or --max-context\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "plumb: {}\n", e.what());
  }
  return kExitError;
}

}  // namespace plumb::server
