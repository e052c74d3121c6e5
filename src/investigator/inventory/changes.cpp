#include "investigator/inventory/changes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "investigator/inventory/rules.h"

namespace plumb::investigator::inventory {
namespace {

// Above these a hunk is not paired statement by statement: its statements count as removed and added.
constexpr std::size_t kMostPairs = 40'000;
constexpr std::size_t kMostCells = 250'000;
constexpr double kAlike = 0.34;  // share of common tokens that makes two statements one

bool same(const Token& a, const Token& b) {
  return a.text == b.text && (a.kind == TokenKind::string) == (b.kind == TokenKind::string);
}

// The tokens of one side that have no partner on the other in a longest common subsequence.
void compare(std::span<const Token> a, std::span<const Token> b, std::vector<std::size_t>& lost,
             std::vector<std::size_t>& gained) {
  std::size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && same(a[head], b[head])) ++head;
  while (tail < a.size() - head && tail < b.size() - head && same(a[a.size() - 1 - tail], b[b.size() - 1 - tail]))
    ++tail;
  const std::size_t n = a.size() - head - tail, m = b.size() - head - tail;
  const auto all = [](std::size_t from, std::size_t count, std::vector<std::size_t>& out) {
    for (std::size_t i = 0; i < count; ++i) out.push_back(from + i);
  };
  if (n == 0 || m == 0 || n * m > kMostCells) return all(head, n, lost), all(head, m, gained);
  std::vector<int> length((n + 1) * (m + 1), 0);
  const auto at = [&](std::size_t i, std::size_t j) -> int& { return length[i * (m + 1) + j]; };
  for (std::size_t i = n; i-- > 0;)
    for (std::size_t j = m; j-- > 0;)
      at(i, j) = same(a[head + i], b[head + j]) ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
  std::size_t i = 0, j = 0;
  while (i < n && j < m) {
    if (same(a[head + i], b[head + j])) {
      ++i, ++j;
    } else if (at(i + 1, j) >= at(i, j + 1)) {
      lost.push_back(head + i++);
    } else {
      gained.push_back(head + j++);
    }
  }
  all(head + i, n - i, lost);
  all(head + j, m - j, gained);
}

using SortedTexts = std::vector<std::string_view>;

SortedTexts sorted_texts(std::span<const Token> tokens) {
  SortedTexts texts;
  for (const Token& t : tokens) texts.push_back(t.text);
  std::sort(texts.begin(), texts.end());
  return texts;
}

// Share of tokens in common, each as often as both have it. Every pair of a hunk is compared: hence sorted once.
double alike(const SortedTexts& a, const SortedTexts& b) {
  std::size_t common = 0;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    const int order = x->compare(*y);
    common += order == 0;
    x += order <= 0;
    y += order >= 0;
  }
  return static_cast<double>(common) / static_cast<double>(std::max(a.size(), b.size()));
}

// Statements of one side that the changed lines touch, and those of the other side that changed lines were cut out of.
std::vector<int> touched(const Source& source, const std::vector<ChangedLine>& own,
                         const std::vector<ChangedLine>& others) {
  std::set<int> found;
  for (std::size_t i = 0; i < own.size();) {  // runs of lines at once
    std::size_t end = i + 1;
    while (end < own.size() && own[end].line == own[end - 1].line + 1) ++end;
    for (const int s : source.in_lines(own[i].line, own[end - 1].line)) found.insert(s);
    i = end;
  }
  int last = -1;
  for (const ChangedLine& line : others) {
    if (line.other == last) continue;
    last = line.other;
    for (const int s : source.in_lines(line.other, line.other))
      if (source.statements()[static_cast<std::size_t>(s)].first_line < line.other) found.insert(s);
  }
  return {found.begin(), found.end()};
}

class HunkChanges {
 public:
  HunkChanges(const ParsedFile& file, std::size_t file_index, std::size_t hunk_index, std::vector<Change>& out)
      : file_(file), file_index_(file_index), hunk_index_(hunk_index), out_(out) {
    const Hunk& hunk = file.file->hunks[hunk_index];
    before_ = pointers(file.old_source, touched(file.old_source, hunk.removed, hunk.added));
    after_ = pointers(file.new_source, touched(file.new_source, hunk.added, hunk.removed));
  }

  void find() {
    drop_equal();
    if (before_.size() * after_.size() <= kMostPairs) pair();
    for (const Statement* s : before_) add(s, nullptr);
    for (const Statement* s : after_) add(nullptr, s);
  }

 private:
  static std::vector<const Statement*> pointers(const Source& source, const std::vector<int>& indices) {
    std::vector<const Statement*> out;
    for (const int i : indices) out.push_back(&source.statements()[static_cast<std::size_t>(i)]);
    return out;
  }

  void drop_equal() {
    std::unordered_map<std::uint64_t, int> left;
    for (const Statement* s : after_) ++left[s->hash];
    std::unordered_map<std::uint64_t, int> dropped;
    std::erase_if(before_, [&](const Statement* s) {
      if (left[s->hash] == 0) return false;
      return --left[s->hash], ++dropped[s->hash], true;
    });
    std::erase_if(after_, [&](const Statement* s) {
      const auto it = dropped.find(s->hash);
      return it != dropped.end() && it->second-- > 0;
    });
  }

  void pair() {
    struct Candidate {
      double score;
      std::size_t before, after;
    };
    std::vector<Candidate> candidates;
    std::vector<SortedTexts> after;
    for (const Statement* s : after_) after.push_back(sorted_texts(file_.new_source.tokens(*s)));
    for (std::size_t i = 0; i < before_.size(); ++i) {
      const SortedTexts before = sorted_texts(file_.old_source.tokens(*before_[i]));
      for (std::size_t j = 0; j < after.size(); ++j)
        if (const double score = alike(before, after[j]); score >= kAlike) candidates.push_back({score, i, j});
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.score != b.score ? a.score > b.score : std::tie(a.before, a.after) < std::tie(b.before, b.after);
    });
    std::vector<bool> before_used(before_.size()), after_used(after_.size());
    for (const Candidate& c : candidates) {
      if (before_used[c.before] || after_used[c.after]) continue;
      before_used[c.before] = after_used[c.after] = true;
      add(before_[c.before], after_[c.after]);
    }
    const auto keep = [](std::vector<const Statement*>& list, const std::vector<bool>& used) {
      std::size_t i = 0;
      std::erase_if(list, [&](const Statement*) { return static_cast<bool>(used[i++]); });
    };
    keep(before_, before_used);
    keep(after_, after_used);
    // What is left, if it is as many on both sides, was replaced in order.
    if (before_.size() != after_.size()) return;
    for (std::size_t i = 0; i < before_.size(); ++i) add(before_[i], after_[i]);
    before_.clear();
    after_.clear();
  }

  void add(const Statement* before, const Statement* after) {
    Change change{file_index_, hunk_index_, before, after, {}, {}, false};
    compare(before ? file_.old_source.tokens(*before) : std::span<const Token>{},
            after ? file_.new_source.tokens(*after) : std::span<const Token>{}, change.lost, change.gained);
    out_.push_back(std::move(change));
  }

  const ParsedFile& file_;
  std::size_t file_index_, hunk_index_;
  std::vector<Change>& out_;
  std::vector<const Statement*> before_, after_;
};

using Names = std::unordered_map<std::string_view, int>;

Names names_of(const Source& source) {
  Names names;
  for (const Statement& s : source.statements())
    for (const Token& t : source.tokens(s))
      if (t.kind == TokenKind::word) ++names[t.text];
  return names;
}

// A name that code can choose: no keyword, literal or type, which mean something by themselves.
bool is_name(const Token& t) {
  static const std::unordered_set<std::string_view> kMeaning{
      "and",      "or",        "not",      "in",       "is",      "if",      "elif",     "else",     "for",
      "while",    "break",     "continue", "return",   "pass",    "True",    "False",    "None",     "true",
      "false",    "nullptr",   "NULL",     "auto",     "on",      "off",     "yes",      "no",       "int",
      "long",     "short",     "char",     "unsigned", "signed",  "bool",    "void",     "const",    "static",
      "volatile", "int8_t",    "int16_t",  "int32_t",  "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t",
      "size_t",   "ptrdiff_t", "assert",   "raise",    "yield",   "await",   "lambda",   "def",      "class"};
  return t.kind == TokenKind::word && !kMeaning.contains(t.text) && t.text.find('-') == std::string_view::npos;
}

// A local name that is gone from the file where another came in its place is a rename and no change. Names that are
// called, that are members, or that say a number format may be another thing altogether.
void forget_renames(const ParsedFile& file, const Names& old_names, const Names& new_names, Change& c) {
  if (!c.before || !c.after || c.lost != c.gained) return;
  const auto before = file.old_source.tokens(*c.before), after = file.new_source.tokens(*c.after);
  if (before.size() != after.size()) return;
  std::erase_if(c.lost, [&](std::size_t i) {
    const Token &a = before[i], &b = after[i];
    const bool called = i + 1 < after.size() && after[i + 1].is("(");
    const bool member = i > 0 && (after[i - 1].is(".") || after[i - 1].is("->") || after[i - 1].is("::"));
    return is_name(a) && is_name(b) && !called && !member && !format_of(a.text) && !format_of(b.text) &&
           !new_names.contains(a.text) && !old_names.contains(b.text) && old_names.at(a.text) == new_names.at(b.text) &&
           old_names.at(a.text) > 1;
  });
  c.gained = c.lost;
}

constexpr std::size_t kShortestMove = 4;  // tokens; `return x` is everywhere and moves nowhere

void mark_moves(std::vector<Change>& changes) {
  const auto only = [](const Change& c) -> const Statement* {
    const Statement* s = c.before && !c.after ? c.before : c.after && !c.before ? c.after : nullptr;
    return s && s->end - s->begin >= kShortestMove ? s : nullptr;
  };
  std::unordered_map<std::uint64_t, std::pair<int, int>> count;  // removed, added
  for (const Change& c : changes)
    if (const Statement* s = only(c)) ++(c.before ? count[s->hash].first : count[s->hash].second);
  for (Change& c : changes)
    if (const Statement* s = only(c))
      c.moved = count[s->hash].first > 0 && count[s->hash].first == count[s->hash].second;
}

}  // namespace

std::vector<Change> find_changes(const std::vector<ParsedFile>& files) {
  std::vector<Change> changes;
  for (std::size_t f = 0; f < files.size(); ++f)
    for (std::size_t h = 0; h < files[f].file->hunks.size(); ++h) HunkChanges(files[f], f, h, changes).find();
  for (std::size_t i = 0; i < changes.size();) {
    const std::size_t f = changes[i].file;
    const Names old_names = names_of(files[f].old_source), new_names = names_of(files[f].new_source);
    for (; i < changes.size() && changes[i].file == f; ++i) forget_renames(files[f], old_names, new_names, changes[i]);
  }
  std::erase_if(changes, [](const Change& c) { return c.before && c.after && c.lost.empty() && c.gained.empty(); });
  mark_moves(changes);
  return changes;
}

}  // namespace plumb::investigator::inventory
