#include "investigator/live_server.h"

#include <charconv>
#include <optional>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace plumb::investigator {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = net::ip::tcp;
using Code = boost::system::error_code;

constexpr std::uint32_t kMaxHeadBytes = 8u << 10;
constexpr std::chrono::seconds kPatience{15};  // for a request to come, and for an answer to go
constexpr std::chrono::milliseconds kAcceptPause{100};

// The page needs its own style and script and no more; nothing may frame it.
constexpr const char* kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

bool is_loopback_name(std::string_view host) {
  if (host == "localhost") return true;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  Code failed;
  const auto address = net::ip::make_address(std::string(host), failed);  // no name that only begins like one
  return !failed && address.is_loopback();
}

// Without the port: "127.0.0.1:80", "[::1]:80".
std::string_view host_of(std::string_view authority) {
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.rfind(':');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket)) return authority;
  return authority.substr(0, colon);
}

}  // namespace

struct LiveServer::Impl {
  explicit Impl(Handler answer) : handler(std::move(answer)) {}

  class Session;
  void accept();

  Handler handler;
  bool loopback = true;
  std::size_t readers = 0;
  net::io_context io{1};
  Tcp::acceptor acceptor{io};
  net::steady_timer pause{io};
  std::uint16_t port = 0;
  std::thread thread;
};

// One connection. Everything runs on the server's only thread.
class LiveServer::Impl::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Impl& server, Tcp::socket socket) : server_(server), stream_(std::move(socket)) { ++server_.readers; }
  ~Session() { --server_.readers; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void read() {
    parser_.emplace();
    parser_->header_limit(kMaxHeadBytes);
    parser_->body_limit(0);
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](const Code& failed, std::size_t) {
      if (!failed)
        self->answer(self->parser_->get());
      else if (failed != http::error::end_of_stream && failed != beast::error::timeout)
        self->write({400, "text/plain", "this is no request that plumb understands\n"}, false, false);
    });
  }

 private:
  void answer(const http::request<http::empty_body>& request) {
    const bool head_only = request.method() == http::verb::head;
    const std::string_view target(request.target().data(), request.target().size());
    const auto host = request[http::field::host];
    LiveReply reply;
    if (!head_only && request.method() != http::verb::get)
      reply = {405, "text/plain", "this page can only be read\n"};
    else if (server_.loopback && !is_loopback_name(host_of({host.data(), host.size()})))
      reply = {403, "text/plain", "this page is shown under a loopback address only\n"};
    else
      reply = server_.handler(target.substr(0, target.find('?')));
    write(std::move(reply), head_only, request.keep_alive());
  }

  void write(LiveReply reply, bool head_only, bool keep_alive) {
    response_ = {};
    response_.result(static_cast<unsigned>(reply.status));
    response_.set(http::field::content_type, reply.type + "; charset=utf-8");
    response_.set(http::field::cache_control, "no-store");
    response_.set("Content-Security-Policy", kPolicy);
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("Referrer-Policy", "no-referrer");
    if (reply.status == 405) response_.set(http::field::allow, "GET, HEAD");
    response_.keep_alive(keep_alive);
    response_.content_length(reply.body.size());
    if (!head_only) response_.body() = std::move(reply.body);
    stream_.expires_after(kPatience);
    http::async_write(stream_, response_, [self = shared_from_this(), keep_alive](const Code& failed, std::size_t) {
      if (!failed && keep_alive) self->read();
    });
  }

  Impl& server_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kMaxHeadBytes};
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
};

void LiveServer::Impl::accept() {
  acceptor.async_accept([this](const Code& failed, Tcp::socket socket) {
    if (failed == net::error::operation_aborted) return;
    if (failed) {  // for example without file descriptors
      pause.expires_after(kAcceptPause);
      pause.async_wait([this](const Code&) { accept(); });
      return;
    }
    if (readers < kMaxReaders) std::make_shared<Session>(*this, std::move(socket))->read();
    accept();
  });
}

bool LiveAddress::is_loopback() const {
  Code failed;
  const auto address = net::ip::make_address(host, failed);
  return !failed && address.is_loopback();
}

Result<LiveAddress> parse_live_address(std::string_view text) {
  LiveAddress address;
  const std::string_view host = host_of(text);
  const bool with_host = host.size() < text.size();
  const std::string_view port = with_host ? text.substr(host.size() + 1) : text;
  const auto [rest, code] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (port.empty() || code != std::errc{} || rest != port.data() + port.size())
    return error("--listen: write [HOST:]PORT, for example 8090 or 127.0.0.1:8090");
  if (!with_host) return address;
  address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  Code failed;
  net::ip::make_address(address.host, failed);
  if (failed) return error("--listen: the host must be an IP address or localhost, for example 127.0.0.1:8090");
  return address;
}

Result<std::unique_ptr<LiveServer>> LiveServer::start(const LiveAddress& address, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(handler));
  impl->loopback = address.is_loopback();
  try {
    const Tcp::endpoint endpoint(net::ip::make_address(address.host), address.port);
    impl->acceptor.open(endpoint.protocol());
    impl->acceptor.set_option(Tcp::acceptor::reuse_address(true));
    impl->acceptor.bind(endpoint);
    impl->acceptor.listen();
    impl->port = impl->acceptor.local_endpoint().port();
    impl->accept();
    impl->thread = std::thread([raw = impl.get()] { raw->io.run(); });
  } catch (const std::exception& e) {  // Asio and the thread throw; nothing crosses our boundary
    return error("--listen {}:{}: {}", address.host, address.port, e.what());
  }
  return std::unique_ptr<LiveServer>(new LiveServer(std::move(impl)));
}

LiveServer::LiveServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LiveServer::~LiveServer() {
  impl_->io.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

std::uint16_t LiveServer::port() const { return impl_->port; }

}  // namespace plumb::investigator
