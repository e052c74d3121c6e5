#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace plumb::investigator {

/// Where a live page is to be seen.
struct LiveAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one

  bool is_loopback() const;
};
/// "8090", "127.0.0.1:8090", "[::1]:8090" or "localhost:8090". Errors: anything else, a host that is no IP address.
Result<LiveAddress> parse_live_address(std::string_view text);

struct LiveReply {
  int status = 200;
  std::string type;
  std::string body;
};

/// A read-only web server on a thread of its own, for few readers: GET and HEAD, no body, at most kMaxReaders
/// connections; heads and waiting times are bounded. On loopback only requests that name a loopback host are answered,
/// so that no page elsewhere can read this one under a name of its own.
///
/// The engine's server is bound to a generator and is of the half that the investigator must not include, so this is
/// one of its own, on the same library (Boost.Beast).
class LiveServer {
 public:
  using Handler = std::function<LiveReply(std::string_view path)>;  // called on the server's thread

  /// Errors: the address is in use or not of this machine.
  static Result<std::unique_ptr<LiveServer>> start(const LiveAddress& address, Handler handler);
  /// Closes every connection and joins the thread.
  ~LiveServer();

  std::uint16_t port() const;

  struct Impl;

 private:
  explicit LiveServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

inline constexpr std::size_t kMaxReaders = 64;

}  // namespace plumb::investigator
