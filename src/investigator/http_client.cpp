#include "investigator/http_client.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

#include "investigator/retry.h"

namespace plumb::investigator {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;
using Code = boost::system::error_code;

constexpr std::uint32_t kMaxHeaderBytes = 64u << 10;
constexpr int kMaxInterimReplies = 8;  // 1xx before the reply proper
constexpr std::size_t kShownBytes = 80;

struct Address {
  std::string host, port;
  std::string prefix;     // path of the base URL, without the last slash
  std::string authority;  // host and port as written, for the Host header
};

bool has_control_or_space(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; });
}

bool has_control(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; });
}

tl::expected<Address, std::string> parse_base_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (url.rfind("https://", 0) == 0) return tl::unexpected(url + ": https is not supported yet, use http://");
  if (url.rfind(kScheme, 0) != 0 || has_control_or_space(url))
    return tl::unexpected(fmt::format("\"{}\" is no base URL: write http://HOST:PORT", url));
  const std::string rest = url.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  Address address{rest.substr(0, slash), "80", rest.substr(slash), rest.substr(0, slash)};
  while (!address.prefix.empty() && address.prefix.back() == '/') address.prefix.pop_back();
  const std::size_t bracket = address.host.rfind(']');  // [::1]:8000
  if (const std::size_t colon = address.host.rfind(':');
      colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
    address.port = address.host.substr(colon + 1);
    address.host.resize(colon);
  }
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  unsigned port = 0;
  const char* const port_end = address.port.data() + address.port.size();
  const auto [end, bad] = std::from_chars(address.port.data(), port_end, port);
  if (address.host.empty() || bad != std::errc() || end != port_end || port == 0 || port > 65535)
    return tl::unexpected(
        fmt::format("\"{}\" is no base URL: write http://HOST:PORT with a port from 1 to 65535", url));
  return address;
}

std::string printable(std::string_view bytes) {
  std::string shown(bytes.substr(0, kShownBytes));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return shown;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool was_closed(const Code& code) {
  return code == http::error::end_of_stream || code == http::error::partial_message || code == asio::error::eof ||
         code == asio::error::connection_reset || code == asio::error::broken_pipe ||
         code == asio::error::connection_aborted || code == asio::error::not_connected;
}

}  // namespace

struct HttpClient::Impl {
  std::string base_url;
  double timeout_s = 0;
  std::size_t max_body_bytes = 0;
  tl::expected<Address, std::string> address;
  asio::io_context context{1};
  bool obeys_limits = false;
  double least_gap_s = 0;                   // between two requests
  Clock::time_point next_request{};         // not before
  std::optional<beast::tcp_stream> stream;  // connected, or empty
  beast::flat_buffer buffer;

  using Request = http::request<http::string_body>;
  using Parser = http::response_parser<http::string_body>;

  tl::unexpected<HttpFailure> failure(HttpFailure::Kind kind, const std::string& what) {
    stream.reset();
    buffer.clear();
    return tl::unexpected(HttpFailure{kind, fmt::format("{}: {}", base_url, what)});
  }

  tl::unexpected<HttpFailure> failure(const Code& code, const std::string& doing) {
    if (code == beast::error::timeout || code == asio::error::operation_aborted)
      return failure(HttpFailure::Kind::timeout, fmt::format("{}: no answer within {} s", doing, timeout_s));
    const bool closed = was_closed(code) || doing == "connecting";
    return failure(
        closed ? HttpFailure::Kind::connect : HttpFailure::Kind::protocol,
        fmt::format("{}: {}", doing,
                    closed && code != asio::error::connection_refused ? "connection closed (" + code.message() + ")"
                                                                      : code.message()));
  }

  // Runs one asynchronous operation to its end; the stream's deadline bounds it.
  template <class Start>
  Code run(Start start) {
    Code result;
    start([&result](const Code& code, auto&&...) { result = code; });
    context.restart();
    context.run();
    return result;
  }

  Code resolve(asio::ip::tcp::resolver::results_type& found, Clock::time_point until) {
    Code code;
    const auto number = asio::ip::make_address(address->host == "localhost" ? "127.0.0.1" : address->host, code);
    if (!code) {
      const auto port = static_cast<unsigned short>(std::stoi(address->port));
      found = asio::ip::tcp::resolver::results_type::create({number, port}, address->host, address->port);
      return code;
    }
    asio::ip::tcp::resolver resolver(context);
    Code result = asio::error::operation_aborted;
    resolver.async_resolve(address->host, address->port, [&](const Code& done, auto results) {
      result = done;
      found = results;
    });
    context.restart();
    context.run_until(until);
    resolver.cancel();
    context.restart();
    context.run();
    return result;
  }

  tl::expected<void, HttpFailure> connect(Clock::time_point until) {
    buffer.clear();
    asio::ip::tcp::resolver::results_type found;
    if (const Code code = resolve(found, until)) return failure(code, "looking up " + address->host);
    stream.emplace(context);
    stream->expires_at(until);
    if (const Code code = run([&](auto done) { stream->async_connect(found, done); }))
      return failure(code, "connecting");
    stream->socket().set_option(asio::ip::tcp::no_delay(true));
    return {};
  }

  // The reply, or the code with which it failed and whether a byte of it had come.
  struct Attempt {
    Code code;
    bool got_some = false;
    std::string doing;
    HttpReply reply;
  };

  Attempt attempt(Request& request, Clock::time_point until) {
    Attempt attempt;
    const auto start = Clock::now();
    stream->expires_at(until);
    attempt.doing = "sending the request";
    attempt.code = run([&](auto done) { http::async_write(*stream, request, done); });
    // A server may answer and close before it has read everything (413): its answer is what counts.
    if (attempt.code && !was_closed(attempt.code)) return attempt;
    attempt.doing = "reading the reply";
    for (int i = 0; i < kMaxInterimReplies; ++i) {
      Parser parser;
      parser.header_limit(kMaxHeaderBytes);
      parser.body_limit(max_body_bytes);
      parser.eager(true);
      attempt.code = run([&](auto done) { http::async_read_header(*stream, buffer, parser, done); });
      attempt.got_some = attempt.got_some || parser.got_some() || buffer.size() > 0;
      // Beast holds a stated length against the limit in requests only.
      if (!attempt.code && parser.content_length().value_or(0) > max_body_bytes) attempt.code = http::error::body_limit;
      if (attempt.code == http::error::partial_message && !begins_like_http()) attempt.code = http::error::bad_version;
      if (!attempt.code) attempt.code = run([&](auto done) { http::async_read(*stream, buffer, parser, done); });
      if (attempt.code) return attempt;
      const int status = parser.get().result_int();
      if (status >= 100 && status < 200 && status != 101) continue;
      attempt.reply = take(parser, std::chrono::duration<double>(Clock::now() - start).count());
      return attempt;
    }
    attempt.code = http::error::bad_status;
    return attempt;
  }

  bool begins_like_http() const {
    constexpr std::string_view kStart = "HTTP/";
    const std::string_view seen(static_cast<const char*>(buffer.data().data()), buffer.size());
    return seen.substr(0, kStart.size()) == kStart.substr(0, seen.size());
  }

  HttpReply take(Parser& parser, double seconds) {
    HttpReply reply;
    reply.status = parser.get().result_int();
    reply.seconds = seconds;
    for (const auto& field : parser.get()) {
      std::string& value = reply.headers[lower(std::string(field.name_string()))];
      value += (value.empty() ? "" : ", ") + std::string(field.value());
    }
    reply.body = std::move(parser.get().body());
    // Bytes after the reply answer nothing we asked: such a connection is not used again.
    if (!parser.get().keep_alive() || buffer.size() > 0) stream.reset();
    return reply;
  }

  tl::expected<HttpReply, HttpFailure> exchange(Request request) {
    if (!address) return tl::unexpected(HttpFailure{HttpFailure::Kind::connect, address.error()});
    const auto until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
    const bool reused = stream.has_value();
    if (!reused)
      if (auto connected = connect(until); !connected) return tl::unexpected(connected.error());
    Attempt tried = attempt(request, until);
    if (reused && tried.code && !tried.got_some && was_closed(tried.code)) {
      // The server closed the idle connection just when we used it, without having read the request.
      stream.reset();
      if (auto connected = connect(until); !connected) return tl::unexpected(connected.error());
      tried = attempt(request, until);
    }
    if (!tried.code) return std::move(tried.reply);
    const std::string seen = printable({static_cast<const char*>(buffer.data().data()), buffer.size()});
    return failure(tried.code, tried.doing + (seen.empty() ? "" : " (beginning \"" + seen + "\")"));
  }

  tl::expected<HttpReply, HttpFailure> request(http::verb verb, const std::string& path, const std::string& body,
                                               const std::map<std::string, std::string>& headers) {
    if (path.empty() || path[0] != '/' || has_control_or_space(path))
      return failure(HttpFailure::Kind::protocol, fmt::format("\"{}\" is no path: it must begin with /", path));
    try {
      const bool known = address.has_value();
      Request request(verb, (known ? address->prefix : "") + path, 11);
      request.set(http::field::host, known ? address->authority : "");
      request.set(http::field::user_agent, "plumb");
      if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
      for (const auto& [name, value] : headers) {
        if (name.empty() || has_control_or_space(name) || name.find(':') != std::string::npos || has_control(value))
          return failure(HttpFailure::Kind::protocol,
                         fmt::format("header \"{}\" holds a character that none may", name));
        request.set(name, value);
      }
      request.body() = body;
      request.prepare_payload();
      return exchange(std::move(request));
    } catch (const std::exception& thrown) {  // out of memory or descriptors, from inside Asio
      return failure(HttpFailure::Kind::protocol, thrown.what());
    }
  }
  // The turn of the next request: at once, or a gap after the one before.
  void wait_for_turn() {
    if (least_gap_s <= 0) return;
    std::this_thread::sleep_until(next_request);
    next_request =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(least_gap_s));
  }

  tl::expected<HttpReply, HttpFailure> patient_post(const std::string& path, const std::string& body,
                                                    const std::map<std::string, std::string>& headers) {
    const double whole_s = timeout_s;
    const auto start = Clock::now();
    const auto left_s = [&] { return whole_s - std::chrono::duration<double>(Clock::now() - start).count(); };
    for (int retries = 0;; ++retries) {
      wait_for_turn();
      timeout_s = std::max(left_s(), 0.001);
      auto reply = request(http::verb::post, path, body, headers);
      timeout_s = whole_s;
      if (!reply || retries == kMaxRetries) return reply;
      const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      const auto wait_s = retry_after_s(*reply, retries, now);
      if (!wait_s || *wait_s >= left_s()) return reply;
      std::this_thread::sleep_for(std::chrono::duration<double>(*wait_s));
    }
  }
};

void HttpClient::obey_limits(double requests_per_min) {
  impl_->obeys_limits = true;
  impl_->least_gap_s = requests_per_min > 0 ? 60 / requests_per_min : 0;
}

void HttpClient::set_timeout(double timeout_s) { impl_->timeout_s = timeout_s; }

HttpClient::HttpClient(std::string base_url, double timeout_s, std::size_t max_body_bytes)
    : impl_(std::make_unique<Impl>()) {
  impl_->address = parse_base_url(base_url);
  impl_->base_url = std::move(base_url);
  impl_->timeout_s = timeout_s;
  impl_->max_body_bytes = max_body_bytes;
}

HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;

tl::expected<HttpReply, HttpFailure> HttpClient::get(const std::string& path) {
  return impl_->request(http::verb::get, path, "", {});
}

tl::expected<HttpReply, HttpFailure> HttpClient::post(const std::string& path, const std::string& json_body,
                                                      const std::map<std::string, std::string>& headers) {
  return impl_->obeys_limits ? impl_->patient_post(path, json_body, headers)
                             : impl_->request(http::verb::post, path, json_body, headers);
}

}  // namespace plumb::investigator
