#include "investigator/markdown.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "investigator/log_tail.h"

namespace plumb::investigator {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::size_t longest_backtick_run(std::string_view text) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

std::string in_one_line(std::string_view text) {
  std::string out;
  for (const char c : printable(trimmed(text), kMaxShownBytes)) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out;
}

std::string code_span(std::string_view text) {
  const std::string line = in_one_line(text);
  if (line.empty()) return "(empty)";
  if (line.find('|') != std::string::npos) {
    std::string out = "<code>";
    for (const char c : line)
      out += is_word(c) || c == ' ' ? std::string(1, c) : fmt::format("&#{};", static_cast<int>(c));
    return out + "</code>";
  }
  const std::string fence(longest_backtick_run(line) + 1, '`');
  // A space on both sides is not shown; without it a backtick at the edge would belong to the fence.
  const char* gap = line.front() == '`' || line.back() == '`' ? " " : "";
  return fence + gap + line + gap + fence;
}

std::string plain_markdown(std::string_view text) { return escape_markdown(in_one_line(text)); }

std::string escape_markdown(std::string_view line) {
  constexpr std::string_view kMarkup = "\\`*[]";
  constexpr std::string_view kReferences = "<&|~";
  constexpr std::string_view kBlocks = "#>+-=";
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool inside_word = i > 0 && i + 1 < line.size() && is_word(line[i - 1]) && is_word(line[i + 1]);
    if (kReferences.find(c) != std::string_view::npos)
      out += fmt::format("&#{};", static_cast<int>(c));
    else if (kMarkup.find(c) != std::string_view::npos || (c == '_' && !inside_word) ||
             (i == 0 && kBlocks.find(c) != std::string_view::npos))
      out += {'\\', c};
    else
      out += c;
  }
  return out;
}

}  // namespace plumb::investigator
