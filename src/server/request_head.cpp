#include "server/request_head.h"

#include <algorithm>
#include <cctype>
#include <iterator>
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

// What a host and port may consist of, besides letters and digits (RFC 3986, 3.2.2).
constexpr std::string_view kHostMarks = "-._~!$&'()*+,;=%:[]";

std::optional<ApiError> refused_host(const RequestHead& head) {
  const auto [begin, end] = head.equal_range(http::field::host);
  const auto lines = std::distance(begin, end);
  if (lines > 1) return refusal(400, "there is more than one Host");
  if (lines == 0) return head.version() < 11 ? std::nullopt : std::optional(refusal(400, "there is no Host"));
  const std::string_view host(begin->value().data(), begin->value().size());
  const bool valid = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) || kHostMarks.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (!valid) return refusal(400, "Host: that is no name of a host");
  return std::nullopt;
}

bool only_holds(const std::vector<std::string>& elements, std::string_view allowed) {
  return std::all_of(elements.begin(), elements.end(), [allowed](const std::string& element) {
    return iequals(element, boost::beast::string_view(allowed.data(), allowed.size()));
  });
}

std::optional<ApiError> refused_content_coding(const RequestHead& head) {
  if (only_holds(elements_of(head, http::field::content_encoding), "identity")) return std::nullopt;
  return refusal(415, "Content-Encoding: only identity is supported; send the body as it is");
}

std::optional<ApiError> refused_expectation(const RequestHead& head) {
  if (head.version() < 11 || only_holds(elements_of(head, http::field::expect), "100-continue")) return std::nullopt;
  return refusal(417, "Expect: only 100-continue can be met");
}

}  // namespace

std::optional<ApiError> refused_head(const RequestHead& head) {
  for (const auto& check : {refused_transfer_coding, refused_host, refused_content_coding, refused_expectation})
    if (auto refused = check(head)) return refused;
  return std::nullopt;
}

std::size_t empty_lines_before(std::string_view bytes) {
  constexpr std::string_view kEmptyLine = "\r\n";
  std::size_t count = 0;
  while (bytes.substr(count, kEmptyLine.size()) == kEmptyLine) count += kEmptyLine.size();
  return count;
}

bool has_folded_line(std::string_view bytes) {
  const std::string_view head = bytes.substr(0, bytes.find("\r\n\r\n"));
  if (head.size() == bytes.size()) return false;
  return head.find("\r\n ") != std::string_view::npos || head.find("\r\n\t") != std::string_view::npos;
}

std::string_view path_of_target(std::string_view target) {
  target = target.substr(0, target.find('?'));
  for (const std::string_view scheme : {"http://", "https://"}) {
    const std::string_view begin = target.substr(0, scheme.size());
    if (!iequals(boost::beast::string_view(begin.data(), begin.size()),
                 boost::beast::string_view(scheme.data(), scheme.size())))
      continue;
    const std::size_t slash = target.find('/', scheme.size());
    return slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target;
}

}  // namespace plumb::server
