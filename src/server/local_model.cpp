#include "server/local_model.h"

#include <chrono>
#include <limits>

#include "model/config.h"
#include "runtime/open_model.h"

namespace plumb::server {
namespace {

// 0 means "its own choice" in both.
Result<int> narrow(const char* name, std::int64_t value) {
  if (value > std::numeric_limits<int>::max()) return error("{} {}: too large", name, value);
  return static_cast<int>(value);
}

}  // namespace

Result<ServedModel> load_local_model(const ServeOptions& options, const Settings& settings) {
  RuntimeOptions runtime;
  const auto backend = parse_backend(options.backend);
  if (!backend) return tl::unexpected(backend.error());
  runtime.backend = *backend;
  runtime.launch = settings;
  runtime.max_context_tokens = options.max_context;
  runtime.pool_tokens = options.pool_tokens;
  if (options.chunk_tokens > 0) runtime.chunk_tokens = options.chunk_tokens;
  const auto running = narrow("--max-running", options.max_running);
  if (!running) return tl::unexpected(running.error());
  if (*running > 0) runtime.max_running = *running;
  const auto waiting = narrow("--max-queue", options.max_queue);
  if (!waiting) return tl::unexpected(waiting.error());
  if (*waiting > 0) runtime.max_waiting = *waiting;

  const auto stated = load_model_config(options.model);
  if (!stated) return tl::unexpected(stated.error());
  auto encoding = load_encoding(options.model, *stated);
  if (!encoding) return tl::unexpected(encoding.error());
  auto opened = open_model(options.model, options.threads, runtime);
  if (!opened) return tl::unexpected(opened.error());
  const ModelConfig& config = opened->model->config;
  ModelInfo info;
  info.name = config.name;
  info.max_context = opened->generator->max_context_tokens();
  info.hash = opened->model->hash;
  info.layers = static_cast<int>(config.layers.size());
  info.max_queue = runtime.max_waiting;
  info.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return ServedModel{std::move(*encoding), std::move(opened->generator), std::move(info)};
}

}  // namespace plumb::server
