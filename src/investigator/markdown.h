#pragma once

#include <string>
#include <string_view>

namespace plumb::investigator {

/// Text as a Markdown code span that shows exactly it, also in a table cell: delimited by more backticks than it holds
/// in a row; with a pipe in it as <code> with character references, which no table splits. Line ends and control
/// characters are shown as escapes, surrounding spaces dropped, what is beyond kMaxShownBytes cut; "(empty)" for none.
std::string code_span(std::string_view text);

/// Text for a line or cell of Markdown that is shown as it is: markup characters escaped, one line, cut alike.
std::string plain_markdown(std::string_view text);

/// The same for a text of ours: not cut, spaces at its ends kept.
std::string escape_markdown(std::string_view line);

/// Foreign text in one line: made printable, line ends and tabs shown as escapes, cut at kMaxShownBytes.
std::string in_one_line(std::string_view text);

inline constexpr std::size_t kMaxShownBytes = 300;

}  // namespace plumb::investigator
