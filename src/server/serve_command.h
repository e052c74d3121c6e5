#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/encoding.h"
#include "runtime/generator.h"
#include "server/service.h"
#include "switches/switches.h"

namespace CLI {
class App;
}

namespace plumb::server {

/// The command line of `plumb serve`.
struct ServeOptions {
  std::string model;  // folder of the checkpoint
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free one, told in the log
  std::string role = "unified";
  std::string backend = "cpu";
  std::vector<std::string> sets;  // NAME=on|off[@LAYERS], in order
  std::int64_t max_logprobs = 20;
  std::optional<std::string> served_model_name;
  std::int64_t max_connections = 2048;
  // Limits of the engine; 0: its own choice.
  int threads = 0;
  std::int64_t max_context = 0;   // tokens of a request, prompt and completion
  std::int64_t chunk_tokens = 0;  // of a prompt in one pass
  std::int64_t max_running = 0;   // sequences
  std::int64_t max_queue = 0;     // sequences
  std::int64_t pool_tokens = 0;   // state kept, in tokens
};

/// Adds the argument and options of `serve` to a subcommand.
void add_serve_options(CLI::App& app, ServeOptions& options);

/// `settings`, then each NAME=VALUE. Errors: a form that does not parse, an unknown switch.
Result<Settings> launch_settings(const std::vector<std::string>& sets, Settings settings = Settings::defaults());

/// What a model folder became.
struct ServedModel {
  std::unique_ptr<Encoding> encoding;
  std::unique_ptr<Generator> generator;
  ModelInfo info;
};
/// Loads a model and starts its generator; the caller wires in the real one.
using ModelLoader = std::function<Result<ServedModel>(const ServeOptions& options, const Settings& settings)>;

/// Serves until SIGTERM or SIGINT, then lets running requests finish within a grace (a second signal ends at once).
/// Returns the exit code: 0, or 3 with a message on stderr for bad input (role, switch, model, port).
int run_serve(const ServeOptions& options, const ModelLoader& load);

}  // namespace plumb::server
