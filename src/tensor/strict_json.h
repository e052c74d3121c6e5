#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace plumb {

/// Parses one JSON document and refuses what a lenient parser lets pass: a key twice in one object, nesting deeper than
/// 64, anything after the document. `where` (a file name) starts every message.
Result<nlohmann::json> parse_json_strictly(std::string_view text, const std::string& where);

/// What a nlohmann::json exception says, in our words: where the text is wrong and what was expected there, or which
/// key is missing, or which type was found. Never the library's own prefix, nor text of the document.
std::string json_complaint(const std::exception& thrown);

/// A value as messages print it: a scalar, cut when it is long; of an array or an object only that it is one.
std::string shown(const nlohmann::json& value);

}  // namespace plumb
