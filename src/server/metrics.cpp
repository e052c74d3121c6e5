#include "server/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace plumb::server {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kSecondsBuckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,   2.5,
                              5,     10,     20,    40,   60,    120,  240, 480,  960, 1920};
const Buckets kTokenBuckets{1, 4, 16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576};

using Family = prometheus::MetricFamily;
using Labels = std::vector<prometheus::ClientMetric::Label>;

Family family(std::string name, std::string help, prometheus::MetricType type) {
  Family out;
  out.name = std::move(name);
  out.help = std::move(help);
  out.type = type;
  return out;
}

void add(Family& out, double value, Labels labels = {}) {
  prometheus::ClientMetric& metric = out.metric.emplace_back();
  metric.label = std::move(labels);
  (out.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

Family single(std::string name, std::string help, prometheus::MetricType type, double value) {
  Family out = family(std::move(name), std::move(help), type);
  add(out, value);
  return out;
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(BuildInfo build_info) : info(std::move(build_info)) {}

  BuildInfo info;
  prometheus::Registry registry;

  prometheus::Family<prometheus::Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  prometheus::Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
  }

  prometheus::Family<prometheus::Counter>& http_requests =
      counters("plumb_http_requests_total", "answers by route, method and status");
  prometheus::Family<prometheus::Counter>& requests =
      counters("plumb_num_requests_total", "requests for tokens that were accepted");
  prometheus::Family<prometheus::Counter>& sequences =
      counters("plumb_request_success_total",
               "sequences that ended, by reason: stop, length, tool_calls, also cancelled and failed");
  prometheus::Family<prometheus::Counter>& refusals =
      counters("plumb_refused_requests_total", "requests answered with an error, by code");
  prometheus::Family<prometheus::Counter>& specials =
      counters("plumb_unexpected_special_token_total", "special tokens generated other than the end token");
  prometheus::Family<prometheus::Counter>& encode_warnings =
      counters("plumb_encode_warnings_total", "prompts that the model does not see as the client may think, by kind");
  prometheus::Family<prometheus::Counter>& answer_warnings =
      counters("plumb_answer_warnings_total", "answers that are irregular, by kind");
  prometheus::Family<prometheus::Counter>& efforts =
      counters("plumb_chat_effort_total", "chats by the effort of their thinking");
  prometheus::Counter& aborted =
      counters("plumb_num_aborted_requests_total", "requests whose client went away").Add({});
  prometheus::Gauge& connections = prometheus::BuildGauge()
                                       .Name("plumb_http_connections_active")
                                       .Help("open connections")
                                       .Register(registry)
                                       .Add({});

  prometheus::Histogram& http_seconds =
      histogram("plumb_http_request_duration_seconds", "from a complete request to its answer (a stream: its header)",
                kSecondsBuckets);
  prometheus::Histogram& first_token_seconds = histogram(
      "plumb_time_to_first_token_seconds", "from the arrival of a request to its first token", kSecondsBuckets);
  prometheus::Histogram& inter_token_seconds =
      histogram("plumb_inter_token_latency_seconds", "between two tokens of a sequence", kSecondsBuckets);
  prometheus::Histogram& request_seconds =
      histogram("plumb_e2e_request_latency_seconds", "from the arrival of a request to its end", kSecondsBuckets);
  prometheus::Histogram& prompt_tokens =
      histogram("plumb_request_prompt_tokens", "prompt tokens of a sequence", kTokenBuckets);
  prometheus::Histogram& generation_tokens =
      histogram("plumb_request_generation_tokens", "generated tokens of a sequence", kTokenBuckets);

  void append_generator(const GeneratorStats& stats, std::vector<Family>& out) const;
  void append_switches(const Settings& settings, std::vector<Family>& out) const;
};

Metrics::Metrics(BuildInfo info) : impl_(std::make_unique<Impl>(std::move(info))) {}
Metrics::~Metrics() = default;

void Metrics::http_answered(const std::string& path, const std::string& method, int status, double seconds) {
  impl_->http_requests.Add({{"handler", path}, {"method", method}, {"status", std::to_string(status)}}).Increment();
  impl_->http_seconds.Observe(seconds);
}
void Metrics::generation_started(bool stream) {
  impl_->requests.Add({{"is_streaming", stream ? "true" : "false"}}).Increment();
}
void Metrics::first_token(double seconds) { impl_->first_token_seconds.Observe(seconds); }
void Metrics::next_token(double seconds) { impl_->inter_token_seconds.Observe(seconds); }
void Metrics::sequence_finished(const std::string& finish, const Usage& usage) {
  impl_->sequences.Add({{"finished_reason", finish}}).Increment();
  impl_->prompt_tokens.Observe(static_cast<double>(usage.prompt_tokens));
  impl_->generation_tokens.Observe(static_cast<double>(usage.completion_tokens));
}
void Metrics::generation_finished(double seconds) { impl_->request_seconds.Observe(seconds); }
void Metrics::client_gone() { impl_->aborted.Increment(); }
void Metrics::refused(const std::string& code) { impl_->refusals.Add({{"code", code}}).Increment(); }
void Metrics::special_token(const std::string& text) { impl_->specials.Add({{"token", text}}).Increment(); }
void Metrics::encode_warning(const std::string& kind) { impl_->encode_warnings.Add({{"kind", kind}}).Increment(); }
void Metrics::answer_warning(const std::string& kind) { impl_->answer_warnings.Add({{"kind", kind}}).Increment(); }
void Metrics::effort(const std::string& name) { impl_->efforts.Add({{"effort", name}}).Increment(); }
void Metrics::connections(std::int64_t open) { impl_->connections.Set(static_cast<double>(open)); }

void Metrics::Impl::append_generator(const GeneratorStats& stats, std::vector<Family>& out) const {
  using Type = prometheus::MetricType;
  const auto number = [](auto x) { return static_cast<double>(x); };
  const auto push = [&out](const char* name, const char* help, Type type, double value) {
    out.push_back(single(name, help, type, value));
  };
  push("plumb_num_requests_running", "sequences being computed", Type::Gauge, number(stats.running));
  push("plumb_num_requests_waiting", "sequences in the queue", Type::Gauge, number(stats.waiting));
  push("plumb_kv_pages_used", "pages that hold state", Type::Gauge, number(stats.pages_used));
  push("plumb_kv_pages_total", "pages planned at start", Type::Gauge, number(stats.pages_total));
  push("plumb_kv_window_pages_used", "pages that hold the windows of running sequences", Type::Gauge,
       number(stats.window_pages_used));
  push("plumb_kv_pages_cached", "pages of stored prefixes, shared ones included", Type::Gauge,
       number(stats.pages_cached));
  push("plumb_num_requests_preempted", "sequences moved out for older ones", Type::Gauge, number(stats.preempted));
  push("plumb_num_preemptions_total", "sequences moved out so far", Type::Counter, number(stats.preemptions));
  push("plumb_recomputed_tokens_total", "positions computed again after a preemption", Type::Counter,
       number(stats.recomputed_tokens));
  push("plumb_prefix_cache_queries_total", "positions that a stored prefix could have covered", Type::Counter,
       number(stats.prefix_query_tokens));
  push("plumb_prefix_cache_hits_total", "positions that a stored prefix covered", Type::Counter,
       number(stats.prefix_hit_tokens));
  push("plumb_prefix_cache_evictions_total", "stored prefixes dropped for room", Type::Counter,
       number(stats.prefix_evictions));
  push("plumb_prefix_cache_nodes", "stored prefixes", Type::Gauge, number(stats.prefix_nodes));
  push("plumb_prefix_cache_bytes", "tails and tokens of stored prefixes", Type::Gauge, number(stats.prefix_bytes));
  push("plumb_digest_mismatches_total", "stored state refused because its bytes had changed", Type::Counter,
       number(stats.digest_mismatches));
  push("plumb_passes_total", "forward passes", Type::Counter, number(stats.passes));
  push("plumb_pass_tokens_total", "tokens computed in all passes", Type::Counter, number(stats.pass_tokens));
  push("plumb_longest_wait_passes", "most passes between two of a running sequence", Type::Gauge,
       number(stats.longest_wait));
  push("plumb_prompt_tokens_total", "prompt tokens", Type::Counter, number(stats.prompt_tokens));
  push("plumb_generation_tokens_total", "generated tokens", Type::Counter, number(stats.generated_tokens));
  push("plumb_cached_tokens_total", "prompt tokens that a stored prefix had", Type::Counter,
       number(stats.cached_tokens));
  push("plumb_sequences_finished_total", "sequences the generator finished", Type::Counter, number(stats.finished));
  push("plumb_sequences_cancelled_total", "sequences that were cancelled", Type::Counter, number(stats.cancelled));
  push("plumb_sequences_rejected_total", "sequences the generator refused", Type::Counter, number(stats.rejected));
}

void Metrics::Impl::append_switches(const Settings& settings, std::vector<Family>& out) const {
  using Type = prometheus::MetricType;
  Family states = family("plumb_switch_info", "the setting of the launch", Type::Gauge);
  Family sides = family("plumb_switch_side_total", "how often each side was taken while serving", Type::Counter);
  for (std::size_t i = 0; i < kSwitchCount; ++i) {
    const std::string name(kSwitches[i].name);
    const SideCounts counts = side_counts(i);
    add(states, 1, {{"switch", name}, {"state", settings.describe(i)}});
    add(sides, static_cast<double>(counts.on), {{"switch", name}, {"side", "on"}});
    add(sides, static_cast<double>(counts.off), {{"switch", name}, {"side", "off"}});
  }
  out.push_back(std::move(states));
  out.push_back(std::move(sides));
}

std::string Metrics::text(const GeneratorStats& stats, const Settings& settings) const {
  std::vector<Family> families = impl_->registry.Collect();
  Family build = family("plumb_build_info", "version and model", prometheus::MetricType::Gauge);
  const BuildInfo& info = impl_->info;
  add(build, 1, {{"version", info.version}, {"model", info.model}, {"model_hash", info.model_hash}});
  families.push_back(std::move(build));
  impl_->append_generator(stats, families);
  impl_->append_switches(settings, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace plumb::server
