#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace plumb {

/// What Python prints with json.dumps(json.loads(text), ensure_ascii=False): separators ", " and ": ", the order of
/// keys kept, of equal keys the last value at the first one's place, integers as they are, floats as repr prints them
/// (2.50 is 2.5, 1e5 is 100000.0, 1e16 is 1e+16), -0 as 0, NaN and Infinity as Python takes them. A lone surrogate
/// makes the whole output ASCII with \uXXXX escapes. Errors: not JSON, or nested deeper than 100. The V4 encoding
/// writes tools and arguments this way, so the bytes reach the model. `text` is UTF-8.
Result<std::string> python_json(std::string_view text);

/// A member of an object: a string's text, or any other value as python_json prints it.
struct JsonMember {
  std::string key;
  bool is_string = false;
  std::string value;
};

/// The members of an object in order. Errors: as python_json's, not an object, or a lone surrogate in a key or in a
/// string of the first level (it has no UTF-8).
Result<std::vector<JsonMember>> python_json_members(std::string_view text);

/// A float as Python's repr prints it: the shortest digits that read back as the same value, with an exponent of at
/// least two digits when it is below -4 or at least 16.
std::string python_float(double value);

/// Appends `text` as the inside of a JSON string: `"`, `\` and control characters escaped, all other bytes as they are.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace plumb
