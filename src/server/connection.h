#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include "server/exchange.h"
#include "server/http_server.h"
#include "server/service.h"

namespace plumb::server {

namespace net = boost::asio;
using Tcp = net::ip::tcp;
using Socket = net::basic_stream_socket<Tcp, net::strand<net::io_context::executor_type>>;
using ErrorCode = boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;

class Connection;

/// What a connection needs of its server, which outlives it.
class ConnectionHost {
 public:
  ConnectionHost(const HttpOptions& http_options, ServiceOptions options, Generator& generator,
                 const Encoding& encoding, ModelInfo model)
      : http(http_options), service(std::move(options), generator, encoding, std::move(model)) {}
  virtual ~ConnectionHost() = default;
  virtual void forget(Connection* connection) = 0;

  const HttpOptions http;
  Service service;
  std::atomic<bool> stopping{false};
};

/// Asio returns the error it has stored; where a failure changes nothing, it ends here.
inline void drop(const ErrorCode& /*ec*/) {}

/// One client. A read is always pending, also while a request is answered: that is how a client that goes away is
/// noticed. Everything runs on the socket's strand; the four public calls come from any thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHost& host, Socket socket);
  ~Connection();

  void run();
  void refuse_overloaded();
  // Closes when idle, else after the running answer.
  void drain();
  void close_soon();

 private:
  friend class RequestExchange;
  static constexpr std::size_t kReadBytes = 16 << 10;
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

  ConnectionHost& server_;
  Socket socket_;
  net::steady_timer deadline_;
  net::steady_timer tick_;
  std::uint64_t deadline_number_ = 0;
  State state_ = State::reading;

  std::vector<char> chunk_ = std::vector<char>(kReadBytes);  // of the pending read; the buffer may move meanwhile
  struct Input;                                              // what has come, and the parser over it
  std::unique_ptr<Input> input_;
  bool read_paused_ = false;
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

}  // namespace plumb::server
