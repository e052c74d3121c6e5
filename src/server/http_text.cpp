#include "server/http_text.h"

#include <charconv>

#include <fmt/format.h>

#include "server/service.h"

namespace plumb::server {
namespace {

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "";
  }
}

}  // namespace

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

std::string response_head(const ResponseHead& head) {
  std::string text = fmt::format("HTTP/1.{} {} {}\r\nServer: plumb/{}\r\nContent-Type: {}\r\n", head.http10 ? 0 : 1,
                                 head.status, reason(head.status), kVersion, head.content_type);
  const auto add = [&text](std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(text), "{}: {}\r\n", name, value);
  };
  for (const auto& [name, value] : head.headers) add(name, value);
  if (!head.request_id.empty()) add("X-Request-Id", head.request_id);
  if (head.content_length)
    add("Content-Length", std::to_string(*head.content_length));
  else if (!head.http10)
    add("Transfer-Encoding", "chunked");
  if (head.keep_alive && head.http10) add("Connection", "keep-alive");
  if (!head.keep_alive && !head.http10) add("Connection", "close");
  return text + "\r\n";
}

}  // namespace plumb::server
