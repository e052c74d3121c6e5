#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/generator.h"
#include "switches/switches.h"

namespace plumb::server {

/// What /metrics says about the process.
struct BuildInfo {
  std::string version;
  std::string model;
  std::string model_hash;
};

/// Counters and histograms of the server, in the text format of Prometheus. All members may be called from any thread.
class Metrics {
 public:
  explicit Metrics(BuildInfo info);
  ~Metrics();

  /// An answer was sent (for a stream: its header). `path` is one of the routes or "other".
  void http_answered(const std::string& path, const std::string& method, int status, double seconds);
  /// A request for tokens began. Times count from its arrival, before it was tokenised.
  void generation_started(bool stream);
  void first_token(double seconds);
  void next_token(double seconds_since_previous);
  /// `finish`: stop, length, cancelled.
  void sequence_finished(const std::string& finish, const Usage& usage);
  void generation_finished(double seconds);
  void client_gone();
  void refused(const std::string& code);
  /// A special token other than the end token was generated.
  void special_token(const std::string& text);
  /// What was irregular about a prompt, or about an answer: words of a fixed set.
  void encode_warning(const std::string& kind);
  void answer_warning(const std::string& kind);
  /// A chat was rendered with this effort of thinking ("none" without thinking).
  void effort(const std::string& name);
  void connections(std::int64_t open);

  /// Everything, with the generator's numbers, the launch settings and the sides taken so far.
  std::string text(const GeneratorStats& stats, const Settings& settings) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb::server
