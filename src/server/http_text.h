#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "server/exchange.h"

namespace plumb::server {

/// `text` with each %XX as the byte it stands for; what is no such escape stays.
std::string percent_decode(std::string_view text);

/// The head of a response. Without a length the body is chunked, or, for HTTP/1.0, ends with the connection.
struct ResponseHead {
  int status = 200;
  const std::string& content_type;
  const HeaderList& headers;
  const std::string& request_id;  // echoed; empty: none
  std::optional<std::size_t> content_length;
  bool http10 = false;
  bool keep_alive = false;
};
std::string response_head(const ResponseHead& head);

}  // namespace plumb::server
