#include "server/request_head.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <boost/beast/core/string.hpp>

namespace plumb::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::iequals;

ApiError refusal(int status, std::string message) {
  return {.status = status, .message = std::move(message), .param = {}, .code = "invalid_http"};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

// The elements of a list field over all its lines; empty ones count for nothing (RFC 9110, 5.6.1).
std::vector<std::string> elements_of(const RequestHead& head, http::field name) {
  std::vector<std::string> elements;
  const auto [begin, end] = head.equal_range(name);
  for (auto line = begin; line != end; ++line) {
    std::string_view rest(line->value().data(), line->value().size());
    while (!rest.empty()) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      if (const std::string_view element = trimmed(rest.substr(0, comma)); !element.empty())
        elements.emplace_back(element);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return elements;
}

std::optional<ApiError> refused_transfer_coding(const RequestHead& head) {
  if (head.count(http::field::transfer_encoding) == 0) return std::nullopt;
  const std::vector<std::string> codings = elements_of(head, http::field::transfer_encoding);
  const auto is_chunked = [](const std::string& coding) { return iequals(coding, "chunked"); };
  if (head.version() < 11) return refusal(400, "HTTP/1.0 knows no Transfer-Encoding");
  if (codings.empty() || !is_chunked(codings.back()))
    return refusal(400, "Transfer-Encoding: the last coding must be chunked, or nobody can tell where the body ends");
  if (std::count_if(codings.begin(), codings.end(), is_chunked) > 1)
    return refusal(400, "Transfer-Encoding: chunked may be there once");
  if (codings.size() > 1) return refusal(501, "Transfer-Encoding: only chunked is supported; send the body as it is");
  if (head.count(http::field::content_length) > 0)
    return refusal(400, "Transfer-Encoding and Content-Length exclude each other");
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> refused_head(const RequestHead& head) { return refused_transfer_coding(head); }

}  // namespace plumb::server
