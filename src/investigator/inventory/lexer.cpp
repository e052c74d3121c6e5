#include "investigator/inventory/lexer.h"

#include <algorithm>
#include <array>
#include <string>

namespace plumb::investigator::inventory {
namespace {

constexpr std::array<std::string_view, 24> kLongOps{
    "<<=", ">>=", "...", "**=", "//=", "<=", ">=", "==", "!=", "->", "::", "&&",
    "||",  "*=",  "+=",  "-=",  "/=",  "%=", "**", "//", ":=", "<<", ">>", "|="};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  Lexer(std::string_view text, Language language)
      : text_(text),
        python_(language == Language::python || language == Language::triton),
        braces_(has_braces(language)),
        shell_(language == Language::shell || language == Language::yaml || language == Language::toml) {}

  std::vector<Token> run() {
    tokens_.reserve(text_.size() / 5);
    while (at_ < text_.size()) step();
    end_line();
    return std::move(tokens_);  // a member: not moved by itself
  }

 private:
  char look(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void step() {
    const char c = text_[at_];
    if (c == '\n') return newline();
    if (c == ' ' || c == '\t' || c == '\r') {
      if (fresh_line_) indent_ += c == '\t' ? 8 : c == ' ' ? 1 : 0;
      ++at_;
      return;
    }
    if (c == '\\' && (look(1) == '\n' || (look(1) == '\r' && look(2) == '\n'))) {  // the line goes on
      at_ += look(1) == '\n' ? 2 : 3;
      ++line_;
      return;
    }
    if (skip_comment(c)) return;
    if (braces_ && fresh_line_ && c == '#') preprocessor_ = true;
    fresh_line_ = false;
    if (c == '"' || c == '\'' || (c == '`' && shell_)) return string(0);
    if (const std::size_t prefix = string_prefix(); prefix > 0) return string(prefix);
    if (is_digit(c) || (c == '.' && is_digit(look(1)))) return number();
    if (is_word(c) || (shell_ && c == '-' && (is_word(look(1)) || look(1) == '-'))) return name();
    op();
  }

  void newline() {
    if (braces_ ? preprocessor_ : depth_ == 0) end_line();
    preprocessor_ = false;
    fresh_line_ = true;
    indent_ = 0;
    ++line_;
    ++at_;
  }

  // Ends the logical line; a Python line that is one string only is documentation.
  void end_line() {
    if (python_ && !tokens_.empty() && tokens_.back().kind == TokenKind::string &&
        (tokens_.size() == 1 || tokens_[tokens_.size() - 2].kind == TokenKind::end))
      tokens_.pop_back();
    else if (!tokens_.empty() && tokens_.back().kind != TokenKind::end)
      tokens_.push_back({TokenKind::end, "", line_, indent_});
  }

  bool skip_comment(char c) {
    if (!braces_ && c == '#') {
      if (shell_ && at_ > 0 && is_word(text_[at_ - 1])) return false;  // a#b is a word of the shell
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      return true;
    }
    if (!braces_ || c != '/') return false;
    if (look(1) == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') {
        if (text_[at_] == '\\' && look(1) == '\n') ++line_, ++at_;
        ++at_;
      }
      return true;
    }
    if (look(1) != '*') return false;
    for (at_ += 2; at_ < text_.size() && !(text_[at_] == '*' && look(1) == '/'); ++at_)
      if (text_[at_] == '\n') ++line_;
    at_ = std::min(at_ + 2, text_.size());
    return true;
  }

  // Length of a prefix as in rb"…" or u8"…" before a quote; 0 where there is none.
  std::size_t string_prefix() const {
    if (shell_) return 0;
    for (std::size_t n = 0; n < 4; ++n) {
      const char c = look(n);
      if (c == '"' || (c == '\'' && python_)) return n;
      if (std::string_view("rRbBfFuUL8").find(c) == std::string_view::npos || c == '\0') return 0;
    }
    return 0;
  }

  void string(std::size_t prefix) {
    const std::string_view prefixes = text_.substr(at_, prefix);
    const bool raw = prefixes.find_first_of("rR") != std::string_view::npos;
    const int line = line_;
    at_ += prefix;
    const char quote = text_[at_];
    if (braces_ && prefix > 0 && prefixes.back() == 'R') return raw_string(line);
    const bool triple = python_ && look(1) == quote && look(2) == quote;
    at_ += triple ? 3 : 1;
    const std::size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        if (!triple && !shell_) break;  // not closed: it ends with its line
        ++line_;
      }
      if (c == '\\' && !(raw && braces_) && at_ + 1 < text_.size()) {
        if (text_[at_ + 1] == '\n') ++line_;
        at_ += 2;
        continue;
      }
      if (c == quote && (!triple || (look(1) == quote && look(2) == quote))) break;
      ++at_;
    }
    const std::size_t end = std::min(at_, text_.size());
    if (end < text_.size() && text_[end] == quote) at_ = end + (triple ? 3 : 1);
    push(TokenKind::string, text_.substr(begin, end - begin), line);
  }

  void raw_string(int line) {
    const std::size_t open = text_.find('(', at_);
    if (open == std::string_view::npos || open - at_ > 17) {
      ++at_;
      return;
    }
    std::string close = ")";
    close.append(text_.substr(at_ + 1, open - at_ - 1)).push_back('"');
    const std::size_t end = std::min(text_.find(close, open), text_.size());
    const std::string_view content = text_.substr(open + 1, end - open - 1);
    for (const char c : content) line_ += c == '\n';
    at_ = std::min(end + close.size(), text_.size());
    push(TokenKind::string, content, line);
  }

  void number() {
    const std::size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const char before = text_[at_ - (at_ > begin ? 1 : 0)];
      const bool hex = at_ - begin > 1 && (text_[begin + 1] == 'x' || text_[begin + 1] == 'X');
      const bool exponent =
          (c == '+' || c == '-') && (hex ? before == 'p' || before == 'P' : before == 'e' || before == 'E');
      if (!is_word(c) && c != '.' && !exponent && !(c == '\'' && braces_ && is_word(look(1)))) break;
      ++at_;
    }
    push(TokenKind::number, text_.substr(begin, at_ - begin), line_);
  }

  void name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || (shell_ && text_[at_] == '-'))) ++at_;
    push(TokenKind::word, text_.substr(begin, at_ - begin), line_);
  }

  void op() {
    std::size_t size = 1;
    for (const std::string_view candidate : kLongOps)
      if (text_.substr(at_, candidate.size()) == candidate && !(braces_ && candidate.starts_with("//"))) {
        size = candidate.size();
        break;
      }
    const char c = text_[at_];
    if (!braces_ && !(shell_ && (c == '(' || c == ')'))) {
      if (c == '(' || c == '[' || (c == '{' && python_)) ++depth_;
      if ((c == ')' || c == ']' || (c == '}' && python_)) && depth_ > 0) --depth_;
    }
    push(TokenKind::op, text_.substr(at_, size), line_);
    at_ += size;
  }

  void push(TokenKind kind, std::string_view text, int line) { tokens_.push_back({kind, text, line, indent_}); }

  std::string_view text_;
  bool python_, braces_, shell_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  int indent_ = 0;
  bool fresh_line_ = true;
  bool preprocessor_ = false;
};

}  // namespace

std::vector<Token> lex(std::string_view text, Language language) { return Lexer(text, language).run(); }

}  // namespace plumb::investigator::inventory
