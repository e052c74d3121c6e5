#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "investigator/inventory/lexer.h"

namespace plumb::investigator::inventory {

/// One statement: tokens [begin, end) of the source, without the one that ends it (`;`, `{`, `}`, end of line).
struct Statement {
  std::size_t begin = 0;
  std::size_t end = 0;
  int first_line = 0;
  int last_line = 0;
  int parent = -1;  // statement whose block this one is in; -1 at file level
  bool opens_block = false;
  std::uint64_t hash = 0;  // of its tokens; equal statements are equal code, whatever their layout
};

/// A source text cut into statements with their nesting. Tokens point into the text given, which must outlive it.
class Source {
 public:
  Source() = default;
  Source(std::string_view text, Language language);

  const std::vector<Statement>& statements() const { return statements_; }
  std::span<const Token> tokens(const Statement& s) const {
    return std::span(tokens_).subspan(s.begin, s.end - s.begin);
  }

  /// Name of the innermost function (Python: `Class.function`) the statement is in or opens; empty at file level.
  std::string function_of(const Statement& s) const;

  /// The statement that opens the innermost function, or nullptr.
  const Statement* function_header(const Statement& s) const;

  /// Indices of the statements that touch lines [first, last].
  std::vector<int> in_lines(int first, int last) const;

 private:
  void cut_by_lines();
  void cut_by_braces();
  void add(std::size_t begin, std::size_t end, int parent, bool opens);
  std::string declared_name(const Statement& s) const;
  bool is_function(const Statement& s) const;

  Language language_ = Language::none;
  std::vector<Token> tokens_;
  std::vector<Statement> statements_;
};

}  // namespace plumb::investigator::inventory
