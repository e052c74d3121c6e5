#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include <boost/beast/http/message.hpp>

#include "server/api.h"

namespace plumb::server {

using RequestHead = boost::beast::http::request_header<>;

/// Why a request with this head is not served, although it could be parsed; nothing when it is. The connection is to be
/// closed after a refusal.
///
/// 400, 501  a transfer coding that is not exactly `chunked`: the parser passes over every other as if there were no
///           body, so that a body would be read as the next request; 501 where only the coding is unknown, 400 where
///           nobody could tell where the body ends (RFC 9112, 6.1 and 6.3)
/// 400       HTTP/1.1 without a Host, more than one, or one that is no host (RFC 9112, 3.2)
/// 415       a Content-Encoding other than identity (RFC 9110, 8.4)
/// 417       an expectation other than 100-continue (RFC 9110, 10.1.1)
std::optional<ApiError> refused_head(const RequestHead& head);

/// How many of `bytes` are empty lines before a request, which are skipped (RFC 9112, 2.2); what may still become one
/// counts only once it is complete.
std::size_t empty_lines_before(std::string_view bytes);

/// Whether the head that begins `bytes`, if it is complete, holds a line folded over two, which HTTP/1.1 forbids (RFC
/// 9112, 5.2) and the parser joins.
bool has_folded_line(std::string_view bytes);

/// The path of a request target without its query: of the origin form as it stands, of the absolute form
/// (`http://HOST/PATH`) what follows the host, "/" if that is nothing (RFC 9112, 3.2).
std::string_view path_of_target(std::string_view target);

}  // namespace plumb::server
