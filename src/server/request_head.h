#pragma once

#include <optional>

#include <boost/beast/http/message.hpp>

#include "server/api.h"

namespace plumb::server {

using RequestHead = boost::beast::http::request_header<>;

/// Why a request with this head is not served, although it could be parsed; nothing when it is. The parser knows one
/// transfer coding and passes over every other as if there were no body, so that a body would be read as the next
/// request: a coding that is not exactly `chunked` is refused (RFC 9112, 6.1 and 6.3), with 501 where only the coding
/// is unknown and with 400 where nobody could tell where the body ends. The connection is to be closed after a refusal.
std::optional<ApiError> refused_head(const RequestHead& head);

}  // namespace plumb::server
