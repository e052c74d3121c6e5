#include "investigator/markup.h"

#include <limits>

#include "investigator/log_tail.h"

namespace plumb::investigator {

std::string escape_markup(std::string_view text) {
  constexpr std::string_view kNonCharacters[] = {"\xEF\xBF\xBE", "\xEF\xBF\xBF"};  // U+FFFE, U+FFFF
  std::string out;
  const std::string clean = printable(text, std::numeric_limits<std::size_t>::max());
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const std::string_view rest = std::string_view(clean).substr(i);
    if (rest.starts_with(kNonCharacters[0]) || rest.starts_with(kNonCharacters[1])) {
      out += '?';
      i += kNonCharacters[0].size() - 1;
      continue;
    }
    switch (clean[i]) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += clean[i];
    }
  }
  return out;
}

}  // namespace plumb::investigator
