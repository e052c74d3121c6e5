#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace plumb {

/// Parses one JSON document and refuses what a lenient parser lets pass: a key twice in one object, nesting deeper than
/// 64, anything after the document. `where` (a file name) starts every message.
Result<nlohmann::json> parse_json_strictly(std::string_view text, const std::string& where);

}  // namespace plumb
