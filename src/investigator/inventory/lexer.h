#pragma once

#include <string_view>
#include <vector>

#include "investigator/inventory/language.h"

namespace plumb::investigator::inventory {

enum class TokenKind { word, number, string, op, end };  // end: a line that ends a statement

/// A piece of source text; `text` points into the text that was read. A string's text is without quotes and prefix.
struct Token {
  TokenKind kind = TokenKind::op;
  std::string_view text;
  int line = 0;    // counts from 1
  int indent = 0;  // columns before the first token of this token's line; a tab counts 8

  bool is(std::string_view t) const { return kind != TokenKind::string && text == t; }
};

/// The tokens of a text without comments and white space. Python docstrings (a string that is a whole statement) are
/// left out too. Never fails: what does not close ends with the text, what is no token is skipped. Linear in the text.
std::vector<Token> lex(std::string_view text, Language language);

}  // namespace plumb::investigator::inventory
