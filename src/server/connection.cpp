#include "server/connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "server/generation.h"
#include "server/http_text.h"
#include "server/request_head.h"

namespace plumb::server {

namespace http = boost::beast::http;

namespace {

constexpr std::size_t kMaxPipelinedBytes = 64 << 10;  // read ahead while a request is being answered
constexpr std::size_t kMaxWriteBytes = 1 << 20;       // of one write, so that its time-out measures progress
constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr Milliseconds kLinger{2000};  // for a client that still sends to read our last words

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

}  // namespace

struct Connection::Input {
  boost::beast::flat_buffer buffer;
  std::optional<http::request_parser<http::string_body>> parser;
};

Connection::Connection(ConnectionHost& host, Socket socket)
    : server_(host),
      socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      tick_(socket_.get_executor()),
      input_(std::make_unique<Input>()) {}

Connection::~Connection() { server_.forget(this); }

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
  input_->parser.emplace();
  input_->parser->eager(true);
  input_->parser->header_limit(static_cast<std::uint32_t>(server_.http.max_header_bytes));
  input_->parser->body_limit(server_.http.max_body_bytes);
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
    input_->buffer.commit(net::buffer_copy(input_->buffer.prepare(bytes), net::buffer(chunk_.data(), bytes)));
  if (state_ == State::reading) parse();
  if (state_ == State::closed) return;
  read_paused_ = state_ == State::answering && input_->buffer.size() >= kMaxPipelinedBytes;
  if (!read_paused_) read();
}

void Connection::parse() {
  boost::beast::flat_buffer& buffer = input_->buffer;
  auto& parser = *input_->parser;
  const auto unread = [&buffer] {
    return std::string_view(static_cast<const char*>(buffer.data().data()), buffer.size());
  };
  if (!request_begun_) buffer.consume(empty_lines_before(unread()));
  if (!request_begun_ && unread() == "\r") return;  // half of an empty line
  if (buffer.size() > 0 && !std::exchange(request_begun_, true)) arm(server_.http.request_timeout);
  while (buffer.size() > 0 && !parser.is_done()) {
    // The parser takes a head only when it is complete, so all of it is still there.
    if (!parser.is_header_done() && has_folded_line(unread()))
      return refuse(http_error(400, "invalid_http", "a line of the header is folded over two"));
    ErrorCode ec;
    const std::size_t used = parser.put(buffer.data(), ec);
    buffer.consume(used);
    if (parser.is_header_done())
      if (const auto refused = refused_head(parser.get())) return refuse(*refused);
    if (ec == http::error::need_more) break;
    if (ec) return refuse(parse_error(ec, server_.http));
  }
  if (parser.is_done()) return dispatch();
  const bool waits = parser.is_header_done() && parser.get().version() >= 11 &&
                     boost::beast::iequals(parser.get()[http::field::expect], "100-continue");
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
  http::request<http::string_body> message = input_->parser->release();
  input_->parser.reset();
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
  return response_head({.status = status,
                        .content_type = content_type,
                        .headers = headers,
                        .request_id = request_id_,
                        .content_length = content_length,
                        .http10 = http10_,
                        .keep_alive = keep_alive_});
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
  input_->buffer.consume(input_->buffer.size());
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

}  // namespace plumb::server
