#pragma once

#include <string>
#include <string_view>

namespace plumb::investigator {

/// Text as character data or attribute value of XML and HTML, whatever bytes it holds: `& < > " '` as character
/// references, what is not UTF-8 or no character of XML 1.0 replaced by "?". Line ends and tabs stay.
std::string escape_markup(std::string_view text);

}  // namespace plumb::investigator
