#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/encoding.h"
#include "runtime/generator.h"
#include "server/api.h"
#include "server/exchange.h"
#include "server/metrics.h"

namespace plumb::server {

/// What the server says about the model it serves.
struct ModelInfo {
  std::string name;              // the model id, unless another is served
  std::int64_t max_context = 0;  // tokens
  std::string hash;
  std::int64_t created = 0;      // seconds since 1970
  int layers = kMaxLayers;       // those that a switch may name
  std::int64_t max_queue = 256;  // sequences that may wait; no request has more
};

struct ServiceOptions {
  ApiLimits limits;                              // vocab_size is filled in from the encoding
  std::optional<std::string> served_model_name;  // if given, a request for another model is refused with 404
  std::vector<std::pair<std::string, std::string>> launch_args;  // shown by /get_server_info
  std::chrono::milliseconds keep_alive{5000};                    // between comments before the first token; 0: none
  std::chrono::milliseconds health_timeout{20000};               // of /health_generate
  std::int64_t max_score_entries = 4 << 20;  // (prompt + max_tokens) times k times choices of a request
};

/// The version that /v1/switches, /metrics and /get_server_info tell.
extern const char* const kVersion;

/// The HTTP API without the HTTP: from a complete request to an answer on an exchange. Thread-safe.
class Service {
 public:
  Service(ServiceOptions options, Generator& generator, const Encoding& encoding, ModelInfo model);
  ~Service();

  /// Answers on the exchange, now or later. Call on its strand.
  void handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  /// From now on requests for tokens are refused with 503.
  void start_draining();
  /// Waits until no generation runs; false when the time is over first.
  bool wait_until_idle(std::chrono::milliseconds timeout);
  /// Cancels what runs; its clients are told.
  void cancel_all();
  /// Cuts what still runs off from the generator.
  void detach_all();

  Metrics& metrics();
  /// `path` if it is one of the routes, else "other": a bounded label.
  static std::string route_label(const std::string& path);

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb::server
