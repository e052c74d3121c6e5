#pragma once

#include <map>
#include <memory>
#include <string>

#include <tl/expected.hpp>

namespace plumb::investigator {

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  double seconds = 0;  // from sending to the last byte
};

/// No HTTP reply came: connection refused, reset, time-out, or something that is not HTTP.
struct HttpFailure {
  enum class Kind { connect, timeout, protocol } kind;
  std::string message;
};

/// A keep-alive connection to one base URL ("http://127.0.0.1:8000"); reconnects when the peer closed it in between.
/// Bounded: replies over `max_body_bytes` are a protocol failure. Not for use from two threads at once.
class HttpClient {
 public:
  explicit HttpClient(std::string base_url, double timeout_s = 60, std::size_t max_body_bytes = 64u << 20);
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;

  /// For the requests that follow.
  void set_timeout(double timeout_s);
  /// From now on post() sends at most so many requests a minute (0: any number), and repeats one that is refused for
  /// the moment (429, 503 with Retry-After) after the wait that the server asks for, as long as the timeout allows, at
  /// most kMaxRetries times. Else the refusal is the reply.
  void obey_limits(double requests_per_min);
  tl::expected<HttpReply, HttpFailure> get(const std::string& path);
  tl::expected<HttpReply, HttpFailure> post(const std::string& path, const std::string& json_body,
                                            const std::map<std::string, std::string>& headers = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb::investigator
