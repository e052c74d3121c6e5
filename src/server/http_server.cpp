#include "server/http_server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/generation.h"
#include "server/request_head.h"

namespace plumb::server {

namespace net = boost::asio;
namespace http = boost::beast::http;
using Tcp = net::ip::tcp;
using ErrorCode = boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;

namespace {

constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kMaxPipelinedBytes = 64 << 10;  // read ahead while a request is being answered
constexpr std::size_t kMaxWriteBytes = 1 << 20;       // of one write, so that its time-out measures progress
constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr Milliseconds kLinger{2000};      // for a client that still sends to read our last words
constexpr Milliseconds kAcceptPause{100};  // after accept failed, for example without file descriptors
constexpr Milliseconds kCancelTime{2000};  // for cancelled generations to end at a stop

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::from_chars(&text[i + 1], &text[i + 1] + 2, byte, 16).ptr == &text[i + 1] + 2;
    out += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return out;
}

ApiError http_error(int status, std::string code, std::string message) {
  return {.status = status, .message = std::move(message), .param = {}, .code = std::move(code)};
}

ApiError parse_error(const ErrorCode& ec, const HttpOptions& options) {
  if (ec == http::error::body_limit)
    return http_error(413, "body_too_large", fmt::format("the body is larger than {} bytes", options.max_body_bytes));
  if (ec == http::error::header_limit)
    return http_error(431, "header_too_large",
                      fmt::format("the header is larger than {} bytes", options.max_header_bytes));
  return http_error(400, "invalid_http", "this is not an HTTP request: " + ec.message());
}

// Metric labels are bounded: a client may send any word as a method.
std::string method_label(const http::request<http::string_body>& request) {
  return request.method() == http::verb::unknown ? "other" : std::string(request.method_string());
}

// Asio returns the error it has stored; where a failure changes nothing, it ends here.
void drop(const ErrorCode& /*ec*/) {}

using Socket = net::basic_stream_socket<Tcp, net::strand<net::io_context::executor_type>>;

}  // namespace

class Connection;

struct HttpServer::Impl {
  Impl(const HttpOptions& http_options, ServiceOptions options, Generator& generator, const Encoding& encoding,
       ModelInfo model)
      : http(http_options), service(std::move(options), generator, encoding, std::move(model)) {}

  Result<void> listen();
  void accept();
  void accepted(const ErrorCode& ec, Socket socket);
  void forget(Connection* connection);
  void for_each_connection(void (Connection::*member)());

  const HttpOptions http;
  Service service;
  net::io_context io;  // after the service: pending handlers refer to it
  // Until the stop is over: with every connection gone the threads would otherwise leave, and what the generator still
  // says would never be heard.
  net::executor_work_guard<net::io_context::executor_type> work{io.get_executor()};
  Tcp::acceptor acceptor{net::make_strand(io)};
  net::steady_timer accept_pause{acceptor.get_executor()};
  std::vector<std::thread> threads;
  std::uint16_t port = 0;
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::unordered_set<Connection*> connections;
};

// One client. A read is always pending, also while a request is answered: that is how a client that goes away is
// noticed. Everything runs on the socket's strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer::Impl& server, Socket socket)
      : server_(server), socket_(std::move(socket)), deadline_(socket_.get_executor()), tick_(socket_.get_executor()) {}
  ~Connection() { server_.forget(this); }

  void run();
  void refuse_overloaded();
  // Closes when idle, else after the running answer.
  void drain();
  void close_soon();

 private:
  friend class RequestExchange;
  enum class State { reading, answering, lingering, closed };

  void read();
  void received(const ErrorCode& ec, std::size_t bytes);
  void begin_request();
  void parse();
  void refuse(const ApiError& error);
  void dispatch();
  void lost();

  void send_reply(HttpReply reply);
  void start_events(HeaderList headers);
  void send_events(std::string text);
  void end_events();
  std::string head_text(int status, const std::string& content_type, const HeaderList& headers,
                        std::optional<std::size_t> content_length);
  void answer_began(int status);
  void write(std::string bytes);
  void write_some();
  void answer_written();
  void guarded(const std::function<void()>& task);

  void arm(Milliseconds timeout);
  void disarm();
  void timed_out();
  void close();

  HttpServer::Impl& server_;
  Socket socket_;
  net::steady_timer deadline_;
  net::steady_timer tick_;
  std::uint64_t deadline_number_ = 0;
  State state_ = State::reading;

  std::vector<char> chunk_ = std::vector<char>(kReadBytes);  // of the pending read; the buffer may move meanwhile
  boost::beast::flat_buffer buffer_;
  bool read_paused_ = false;
  std::optional<http::request_parser<http::string_body>> parser_;
  bool request_begun_ = false;
  bool continue_sent_ = false;

  std::uint64_t request_number_ = 0;
  std::chrono::steady_clock::time_point request_at_;
  std::string method_label_ = "other", route_ = "other", request_id_;
  bool head_only_ = false, keep_alive_ = false, http10_ = false, began_ = false, ended_ = false;
  std::function<void()> on_gone_;

  std::deque<std::string> unsent_;
  std::size_t unsent_bytes_ = 0;
  std::size_t front_sent_ = 0;
  bool writing_ = false;
};

// The exchange of one request on a connection; calls after its answer has ended do nothing.
class RequestExchange final : public Exchange {
 public:
  RequestExchange(std::shared_ptr<Connection> connection, std::uint64_t number)
      : connection_(std::move(connection)), number_(number) {}

  void reply(HttpReply reply) override {
    if (open()) connection_->send_reply(std::move(reply));
  }
  void start_events(HeaderList headers) override {
    if (open()) connection_->start_events(std::move(headers));
  }
  void send(std::string text) override {
    if (open()) connection_->send_events(std::move(text));
  }
  void end_events() override {
    if (open()) connection_->end_events();
  }
  void on_gone(std::function<void()> callback) override {
    if (open()) connection_->on_gone_ = std::move(callback);
  }
  void after(Milliseconds delay, std::function<void()> callback) override {
    if (!open()) return;
    connection_->tick_.expires_after(delay);
    connection_->tick_.async_wait(
        [connection = connection_, number = number_, callback = std::move(callback)](const ErrorCode& ec) {
          if (!ec && number == connection->request_number_ && !connection->ended_) connection->guarded(callback);
        });
  }
  void post(std::function<void()> task) override {
    net::post(connection_->socket_.get_executor(),
              [connection = connection_, task = std::move(task)] { connection->guarded(task); });
  }

 private:
  bool open() const {
    return number_ == connection_->request_number_ && connection_->state_ == Connection::State::answering &&
           !connection_->ended_;
  }

  const std::shared_ptr<Connection> connection_;
  const std::uint64_t number_;
};

void Connection::run() {
  net::post(socket_.get_executor(), [self = shared_from_this()] {
    ErrorCode ignored;
    drop(self->socket_.set_option(Tcp::no_delay(true), ignored));
    self->begin_request();
    self->read();
  });
}

void Connection::refuse_overloaded() {
  net::post(socket_.get_executor(), [self = shared_from_this()] {
    self->state_ = State::answering;
    self->send_reply(error_reply(
        {.status = 503, .type = "server_error", .message = "too many connections", .param = {}, .code = "overloaded"}));
  });
}

void Connection::drain() {
  net::post(socket_.get_executor(), [self = shared_from_this()] {
    self->keep_alive_ = false;
    if (self->state_ != State::answering) self->close();
  });
}

void Connection::close_soon() {
  net::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
}

void Connection::begin_request() {
  state_ = State::reading;
  request_begun_ = continue_sent_ = began_ = ended_ = false;
  request_id_.clear();
  method_label_ = route_ = "other";
  head_only_ = keep_alive_ = http10_ = false;
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(static_cast<std::uint32_t>(server_.http.max_header_bytes));
  parser_->body_limit(server_.http.max_body_bytes);
  arm(server_.http.idle_timeout);
}

void Connection::read() {
  socket_.async_read_some(net::buffer(chunk_),
                          [self = shared_from_this()](const ErrorCode& ec, std::size_t n) { self->received(ec, n); });
}

void Connection::received(const ErrorCode& ec, std::size_t bytes) {
  if (state_ == State::closed) return;
  if (ec) return lost();
  if (state_ != State::lingering)
    buffer_.commit(net::buffer_copy(buffer_.prepare(bytes), net::buffer(chunk_.data(), bytes)));
  if (state_ == State::reading) parse();
  if (state_ == State::closed) return;
  read_paused_ = state_ == State::answering && buffer_.size() >= kMaxPipelinedBytes;
  if (!read_paused_) read();
}

void Connection::parse() {
  const auto unread = [this] {
    return std::string_view(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  };
  if (!request_begun_) buffer_.consume(empty_lines_before(unread()));
  if (!request_begun_ && unread() == "\r") return;  // half of an empty line
  if (buffer_.size() > 0 && !std::exchange(request_begun_, true)) arm(server_.http.request_timeout);
  while (buffer_.size() > 0 && !parser_->is_done()) {
    // The parser takes a head only when it is complete, so all of it is still there.
    if (!parser_->is_header_done() && has_folded_line(unread()))
      return refuse(http_error(400, "invalid_http", "a line of the header is folded over two"));
    ErrorCode ec;
    const std::size_t used = parser_->put(buffer_.data(), ec);
    buffer_.consume(used);
    if (parser_->is_header_done())
      if (const auto refused = refused_head(parser_->get())) return refuse(*refused);
    if (ec == http::error::need_more) break;
    if (ec) return refuse(parse_error(ec, server_.http));
  }
  if (parser_->is_done()) return dispatch();
  const bool waits = parser_->is_header_done() && parser_->get().version() >= 11 &&
                     boost::beast::iequals(parser_->get()[http::field::expect], "100-continue");
  if (waits && !std::exchange(continue_sent_, true)) write("HTTP/1.1 100 Continue\r\n\r\n");
}

// The answer to what is no request, after which nobody can tell where the next one begins: the connection is closed.
void Connection::refuse(const ApiError& error) {
  request_at_ = std::chrono::steady_clock::now();
  ++request_number_;
  state_ = State::answering;
  keep_alive_ = false;
  send_reply(error_reply(error));
}

void Connection::dispatch() {
  http::request<http::string_body> message = parser_->release();
  parser_.reset();
  disarm();
  state_ = State::answering;
  ++request_number_;
  request_at_ = std::chrono::steady_clock::now();

  const std::string_view target(message.target().data(), message.target().size());
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = percent_decode(path_of_target(target)),
                      .body = std::move(message.body())};
  method_label_ = method_label(message);
  route_ = Service::route_label(request.path);
  head_only_ = message.method() == http::verb::head;
  http10_ = message.version() < 11;
  keep_alive_ = message.keep_alive() && !server_.stopping;
  request_id_ = std::string(message["X-Request-Id"].substr(0, kMaxRequestIdBytes));
  server_.service.handle(request, std::make_shared<RequestExchange>(shared_from_this(), request_number_));
}

// The peer closed or half-closed, or the connection broke: whoever waits for an answer does not any more.
void Connection::lost() {
  const bool unanswered = state_ == State::answering && !ended_;
  close();
  if (unanswered && on_gone_) std::exchange(on_gone_, nullptr)();
}

std::string Connection::head_text(int status, const std::string& content_type, const HeaderList& headers,
                                  std::optional<std::size_t> content_length) {
  http::response<http::empty_body> head(static_cast<http::status>(status), http10_ ? 10 : 11);
  head.set(http::field::server, std::string("plumb/") + kVersion);
  head.set(http::field::content_type, content_type);
  for (const auto& [name, value] : headers) head.set(name, value);
  if (!request_id_.empty()) head.set("X-Request-Id", request_id_);
  if (content_length)
    head.content_length(*content_length);
  else if (!http10_)
    head.chunked(true);
  head.keep_alive(keep_alive_);
  std::string text = fmt::format("HTTP/1.{} {} {}\r\n", http10_ ? 0 : 1, status,
                                 std::string_view(head.reason().data(), head.reason().size()));
  for (const auto& field : head) {
    text.append(field.name_string().data(), field.name_string().size()).append(": ");
    text.append(field.value().data(), field.value().size()).append("\r\n");
  }
  return text + "\r\n";
}

void Connection::answer_began(int status) {
  began_ = true;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - request_at_;
  server_.service.metrics().http_answered(route_, method_label_, status, seconds.count());
}

void Connection::send_reply(HttpReply reply) {
  answer_began(reply.status);
  ended_ = true;
  std::string bytes = head_text(reply.status, reply.content_type, reply.headers, reply.body.size());
  if (!head_only_) bytes += reply.body;
  write(std::move(bytes));
}

void Connection::start_events(HeaderList headers) {
  answer_began(200);
  headers.emplace_back("Cache-Control", "no-cache");
  if (http10_) keep_alive_ = false;
  write(head_text(200, "text/event-stream", headers, std::nullopt));
}

void Connection::send_events(std::string text) {
  if (text.empty()) return;
  if (!http10_) text = fmt::format("{:x}\r\n", text.size()) + text + "\r\n";
  write(std::move(text));
  if (unsent_bytes_ > server_.http.max_unsent_bytes) lost();
}

void Connection::end_events() {
  ended_ = true;
  if (http10_) {
    if (!writing_) answer_written();
  } else {
    write("0\r\n\r\n");
  }
}

void Connection::write(std::string bytes) {
  unsent_bytes_ += bytes.size();
  unsent_.push_back(std::move(bytes));
  if (!writing_) write_some();
}

void Connection::write_some() {
  // Many small events become one write.
  while (unsent_.size() > 1 && unsent_.front().size() + unsent_[1].size() <= kReadBytes) {
    unsent_[1].insert(0, unsent_.front());
    unsent_.pop_front();
  }
  writing_ = true;
  if (state_ == State::answering) arm(server_.http.write_timeout);
  const std::string& front = unsent_.front();
  const std::size_t size = std::min(front.size() - front_sent_, kMaxWriteBytes);
  socket_.async_write_some(net::buffer(front.data() + front_sent_, size),
                           [self = shared_from_this()](const ErrorCode& ec, std::size_t sent) {
                             self->writing_ = false;
                             if (self->state_ == State::closed) return;
                             if (ec) return self->lost();
                             self->front_sent_ += sent;
                             self->unsent_bytes_ -= sent;
                             if (self->front_sent_ == self->unsent_.front().size()) {
                               self->unsent_.pop_front();
                               self->front_sent_ = 0;
                             }
                             if (!self->unsent_.empty()) return self->write_some();
                             if (self->state_ == State::answering) self->disarm();
                             if (self->state_ == State::answering && self->ended_) self->answer_written();
                           });
}

void Connection::answer_written() {
  on_gone_ = nullptr;
  tick_.cancel();
  if (keep_alive_ && !server_.stopping) {
    begin_request();
    parse();
    if (state_ != State::closed && std::exchange(read_paused_, false)) read();
    return;
  }
  // Closing with unread bytes would reset the connection, and the client might never see the answer.
  state_ = State::lingering;
  ErrorCode ignored;
  drop(socket_.shutdown(Tcp::socket::shutdown_send, ignored));
  buffer_.consume(buffer_.size());
  arm(kLinger);
  if (std::exchange(read_paused_, false)) read();
}

void Connection::guarded(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& e) {
    spdlog::error("{} {}: {}", method_label_, route_, e.what());
    lost();
  }
}

void Connection::arm(Milliseconds timeout) {
  const std::uint64_t number = ++deadline_number_;
  deadline_.expires_after(timeout);
  deadline_.async_wait([self = shared_from_this(), number](const ErrorCode& ec) {
    if (!ec && number == self->deadline_number_) self->timed_out();
  });
}

void Connection::disarm() {
  ++deadline_number_;
  deadline_.cancel();
}

void Connection::timed_out() {
  if (state_ != State::reading || !request_begun_) return lost();
  refuse(http_error(408, "request_timeout", "the request did not arrive in time"));
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  ErrorCode ignored;
  disarm();
  tick_.cancel();
  drop(socket_.close(ignored));
}

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
