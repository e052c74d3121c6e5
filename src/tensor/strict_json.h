#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace plumb {

/// What a document may hold.
struct JsonLimits {
  int max_depth = 64;
  std::int64_t max_values = std::numeric_limits<std::int64_t>::max();  // objects, arrays, keys and scalars
};

/// Parses one JSON document and refuses what a lenient parser lets pass: a key twice in one object, nesting deeper than
/// the limit, anything after the document. O(n log n) in the size of the text. `where` (a file name) starts every
/// message; empty: the message alone.
Result<nlohmann::json> parse_json_strictly(std::string_view text, const std::string& where,
                                           const JsonLimits& limits = {});
/// Same; objects keep the order of their keys.
Result<nlohmann::ordered_json> parse_ordered_json_strictly(std::string_view text, const std::string& where,
                                                           const JsonLimits& limits = {});

/// What a nlohmann::json exception says, in our words: where the text is wrong and what was expected there, or which
/// key is missing, or which type was found. Never the library's own prefix, nor text of the document.
std::string json_complaint(const std::exception& thrown);

/// A value as messages print it: a scalar, cut when it is long; of an array or an object only that it is one.
std::string shown(const nlohmann::json& value);

}  // namespace plumb
