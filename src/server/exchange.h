#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace plumb::server {

/// A request as it came, its body complete.
struct HttpRequest {
  std::string method;
  std::string path;  // without the query, percent-decoded
  std::string body;
};

using HeaderList = std::vector<std::pair<std::string, std::string>>;

/// A complete answer.
struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HeaderList headers;
};

/// The way back to the client of one request. All calls except `post` are made on the exchange's strand, where all its
/// callbacks run too; nothing blocks. After the end of the answer calls have no effect.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Answers completely: instead of the three below.
  virtual void reply(HttpReply reply) = 0;
  /// Sends a 200 header of an event stream.
  virtual void start_events(HeaderList headers) = 0;
  /// Sends text of the stream (whole events or comments); it goes out at once.
  virtual void send(std::string text) = 0;
  virtual void end_events() = 0;
  /// `callback` runs once if the client is gone before the answer has ended.
  virtual void on_gone(std::function<void()> callback) = 0;
  /// `callback` runs after the delay unless the answer has ended; one at a time.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> callback) = 0;
  /// Runs `task` on the strand; from any thread.
  virtual void post(std::function<void()> task) = 0;
};

}  // namespace plumb::server
