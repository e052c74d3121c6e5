#include "server/http_server.h"

#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "server/connection.h"

namespace plumb::server {
namespace {

constexpr Milliseconds kAcceptPause{100};  // after accept failed, for example without file descriptors
constexpr Milliseconds kCancelTime{2000};  // for cancelled generations to end at a stop

}  // namespace

struct HttpServer::Impl final : ConnectionHost {
  using ConnectionHost::ConnectionHost;

  Result<void> listen();
  void accept();
  void accepted(const ErrorCode& ec, Socket socket);
  void forget(Connection* connection) override;
  void for_each_connection(void (Connection::*member)());

  net::io_context io;  // its pending handlers refer to the host's service
  // Until the stop is over: with every connection gone the threads would otherwise leave, and what the generator still
  // says would never be heard.
  net::executor_work_guard<net::io_context::executor_type> work{io.get_executor()};
  Tcp::acceptor acceptor{net::make_strand(io)};
  net::steady_timer accept_pause{acceptor.get_executor()};
  std::vector<std::thread> threads;
  std::uint16_t port = 0;
  std::mutex mutex;
  std::unordered_set<Connection*> connections;
};

Result<void> HttpServer::Impl::listen() {
  ErrorCode ec;
  const auto address = net::ip::make_address(http.host == "localhost" ? "127.0.0.1" : http.host, ec);
  if (ec) return error("--host {}: not an IP address; write for example 127.0.0.1", http.host);
  const Tcp::endpoint endpoint(address, http.port);
  try {
    acceptor.open(endpoint.protocol());
    acceptor.set_option(Tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen(net::socket_base::max_listen_connections);
    port = acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& e) {
    if (e.code() == net::error::address_in_use)
      return error("port {} of {} is in use by another process; stop it or choose another with --port", http.port,
                   http.host);
    return error("cannot listen on {} port {}: {}", http.host, http.port, e.code().message());
  }
  return {};
}

void HttpServer::Impl::accept() {
  acceptor.async_accept(net::make_strand(io),
                        [this](const ErrorCode& ec, Socket socket) { accepted(ec, std::move(socket)); });
}

void HttpServer::Impl::accepted(const ErrorCode& ec, Socket socket) {
  if (ec == net::error::operation_aborted || stopping) return;
  if (ec) {
    spdlog::warn("accept: {}", ec.message());
    accept_pause.expires_after(kAcceptPause);
    return accept_pause.async_wait([this](const ErrorCode& aborted) {
      if (!aborted) accept();
    });
  }
  const auto connection = std::make_shared<Connection>(*this, std::move(socket));
  std::size_t open = 0;
  {
    const std::lock_guard lock(mutex);
    connections.insert(connection.get());
    open = connections.size();
  }
  service.metrics().connections(static_cast<std::int64_t>(open));
  // Twice the limit is the bound of those that are only told so.
  if (open <= http.max_connections)
    connection->run();
  else if (open <= 2 * http.max_connections)
    connection->refuse_overloaded();
  accept();
}

void HttpServer::Impl::forget(Connection* connection) {
  const std::lock_guard lock(mutex);
  connections.erase(connection);
  service.metrics().connections(static_cast<std::int64_t>(connections.size()));
}

void HttpServer::Impl::for_each_connection(void (Connection::*member)()) {
  std::vector<std::shared_ptr<Connection>> alive;
  {
    const std::lock_guard lock(mutex);
    for (Connection* connection : connections)
      if (auto shared = connection->weak_from_this().lock()) alive.push_back(std::move(shared));
  }
  for (const auto& connection : alive) ((*connection).*member)();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& http, ServiceOptions options,
                                                      Generator& generator, const Encoding& encoding, ModelInfo model) {
  auto impl = std::make_unique<Impl>(http, std::move(options), generator, encoding, std::move(model));
  if (const auto listening = impl->listen(); !listening) return tl::unexpected(listening.error());
  impl->accept();
  Impl* const raw = impl.get();
  try {
    for (int i = 0; i < http.io_threads; ++i) raw->threads.emplace_back([raw] { raw->io.run(); });
  } catch (const std::system_error& e) {
    raw->io.stop();
    for (std::thread& thread : raw->threads) thread.join();
    return error("{} threads for connections cannot be started: {}", http.io_threads, e.code().message());
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() { stop(Milliseconds(0)); }

std::uint16_t HttpServer::port() const { return impl_->port; }

void HttpServer::stop(Milliseconds grace) {
  if (impl_->stopping.exchange(true)) return;
  Impl& impl = *impl_;
  impl.service.start_draining();
  net::post(impl.acceptor.get_executor(), [&impl] {
    ErrorCode ignored;
    drop(impl.acceptor.close(ignored));
    impl.accept_pause.cancel();
  });
  impl.for_each_connection(&Connection::drain);
  if (!impl.service.wait_until_idle(grace)) {
    impl.service.cancel_all();
    if (!impl.service.wait_until_idle(kCancelTime)) spdlog::error("stop: cancelled requests did not end in time");
  }
  impl.service.detach_all();
  // Answers that have ended may still be on their way: give them the time of a cancelled one.
  const auto give_up = std::chrono::steady_clock::now() + kCancelTime;
  while (std::chrono::steady_clock::now() < give_up) {
    {
      const std::lock_guard lock(impl.mutex);
      if (impl.connections.empty()) break;
    }
    impl.for_each_connection(&Connection::drain);
    std::this_thread::sleep_for(Milliseconds(5));
  }
  impl.io.stop();
  for (std::thread& thread : impl.threads) thread.join();
}

}  // namespace plumb::server
