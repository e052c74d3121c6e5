#include "investigator/inventory/source.h"

#include <algorithm>
#include <array>

namespace plumb::investigator::inventory {
namespace {

constexpr std::array<std::string_view, 14> kNoFunction{"if",   "for",   "while",     "switch", "catch",
                                                       "else", "do",    "namespace", "struct", "class",
                                                       "enum", "union", "return",    "="};
constexpr std::array<std::string_view, 5> kNoName{"__launch_bounds__", "__attribute__", "alignas", "decltype",
                                                  "requires"};

bool one_of(std::string_view text, const auto& list) { return std::find(list.begin(), list.end(), text) != list.end(); }

constexpr std::uint64_t kFnvBasis = 1469598103934665603ULL;
constexpr std::uint64_t kFnvPrime = 1099511628211ULL;

std::uint64_t hash_of(std::span<const Token> tokens) {
  std::uint64_t h = kFnvBasis;
  const auto mix = [&h](unsigned char c) { h = (h ^ c) * kFnvPrime; };
  for (const Token& t : tokens) {
    for (const char c : t.text) mix(static_cast<unsigned char>(c));
    mix(t.kind == TokenKind::string ? 1 : 0);
  }
  return h;
}

}  // namespace

Source::Source(std::string_view text, Language language) : language_(language), tokens_(lex(text, language)) {
  if (has_braces(language))
    cut_by_braces();
  else
    cut_by_lines();
}

void Source::add(std::size_t begin, std::size_t end, int parent, bool opens) {
  if (begin >= end) return;
  const std::span<const Token> tokens = std::span(tokens_).subspan(begin, end - begin);
  statements_.push_back({begin, end, tokens.front().line, tokens.back().line, parent, opens, hash_of(tokens)});
}

// A statement ends at an `end` token; blocks by indentation.
void Source::cut_by_lines() {
  struct Open {
    int indent;
    int statement;
  };
  std::vector<Open> open;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].kind != TokenKind::end) continue;
    if (i > begin) {
      const int indent = tokens_[begin].indent;
      while (!open.empty() && open.back().indent >= indent) open.pop_back();
      const bool opens = tokens_[i - 1].is(":");
      add(begin, i, open.empty() ? -1 : open.back().statement, opens);
      if (opens) open.push_back({indent, static_cast<int>(statements_.size()) - 1});
    }
    begin = i + 1;
  }
}

// A statement ends at `;`, `{` or `}` outside parentheses, or at the end of a preprocessor line.
void Source::cut_by_braces() {
  std::vector<int> open;  // statement that opened each brace; -1 for a bare one
  int parens = 0;
  std::size_t begin = 0;
  const auto parent = [&open] {
    for (auto it = open.rbegin(); it != open.rend(); ++it)
      if (*it >= 0) return *it;
    return -1;
  };
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const Token& t = tokens_[i];
    if (t.kind == TokenKind::string) continue;
    if (t.is("(")) ++parens;
    if (t.is(")") && parens > 0) --parens;
    const bool brace = t.is("{") || t.is("}");
    if (t.kind != TokenKind::end && !(t.is(";") && parens == 0) && !brace) continue;
    const bool opens = t.is("{") && i > begin;
    add(begin, i, parent(), opens);
    if (t.is("{")) open.push_back(opens ? static_cast<int>(statements_.size()) - 1 : -1);
    if (t.is("}") && !open.empty()) open.pop_back();
    if (brace) parens = 0;
    begin = i + 1;
  }
  add(begin, tokens_.size(), parent(), false);
}

bool Source::is_function(const Statement& s) const {
  const std::span<const Token> t = tokens(s);
  if (!s.opens_block) return false;
  if (!has_braces(language_)) return t[0].is("def") || (t.size() > 1 && t[0].is("async") && t[1].is("def"));
  return std::none_of(t.begin(), t.end(),
                      [](const Token& x) {
                        return x.kind != TokenKind::string && one_of(x.text, kNoFunction) && !x.is("class") &&
                               !x.is("=");
                      }) &&
         !declared_name(s).empty();
}

std::string Source::declared_name(const Statement& s) const {
  const std::span<const Token> t = tokens(s);
  for (std::size_t i = 0; i + 1 < t.size(); ++i) {
    if (!has_braces(language_)) {
      if (t[i].is("def") || t[i].is("class")) return std::string(t[i + 1].text);
    } else if (t[i].kind == TokenKind::word && t[i + 1].is("(") && !one_of(t[i].text, kNoName)) {
      return std::string(t[i].text);
    }
  }
  return "";
}

const Statement* Source::function_header(const Statement& s) const {
  for (const Statement* at = &s;; at = &statements_[static_cast<std::size_t>(at->parent)]) {
    if (is_function(*at)) return at;
    if (at->parent < 0) return nullptr;
  }
}

std::string Source::function_of(const Statement& s) const {
  const Statement* header = function_header(s);
  if (!header) return "";
  std::string name = declared_name(*header);
  if (has_braces(language_) || header->parent < 0) return name;
  const Statement& outer = statements_[static_cast<std::size_t>(header->parent)];
  const std::span<const Token> t = tokens(outer);
  return t.size() > 1 && t[0].is("class") ? std::string(t[1].text) + "." + name : name;
}

std::vector<int> Source::in_lines(int first, int last) const {
  std::vector<int> found;
  // Statements start in ascending lines, so those that may reach `first` begin a bounded way before it.
  const auto after = std::upper_bound(statements_.begin(), statements_.end(), last,
                                      [](int line, const Statement& s) { return line < s.first_line; });
  for (auto it = after; it != statements_.begin();) {
    --it;
    if (it->last_line >= first) found.push_back(static_cast<int>(it - statements_.begin()));
    constexpr int kLongestStatementLines = 400;
    if (it->first_line < first - kLongestStatementLines) break;
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace plumb::investigator::inventory
