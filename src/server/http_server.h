#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/service.h"

namespace plumb::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free one; HttpServer::port() tells which
  int io_threads = 2;
  std::size_t max_connections = 512;
  std::size_t max_body_bytes = 16 << 20;
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_unsent_bytes = 64 << 20;           // of a stream whose client does not read; more closes it
  std::chrono::milliseconds request_timeout{30000};  // from a request's first byte to its last
  std::chrono::milliseconds idle_timeout{120000};    // of a connection between requests
  std::chrono::milliseconds write_timeout{60000};    // without progress of one write
};

/// Serves the API over HTTP/1.1 on threads of its own.
class HttpServer {
 public:
  /// Listens and serves. The generator and the encoding outlive the server. Errors: an address that does not parse, a
  /// port that is taken.
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& http, ServiceOptions options,
                                                   Generator& generator, const Encoding& encoding, ModelInfo model);
  ~HttpServer();

  std::uint16_t port() const;

  /// Stops accepting, refuses new requests, lets running ones finish within `grace`, then cancels them (their clients
  /// are told), closes every connection and joins the threads. A second call does nothing.
  void stop(std::chrono::milliseconds grace);

  struct Impl;

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb::server
