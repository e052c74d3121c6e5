#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pre_tokenizer.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <pcre2.h>

#include "base/rng.h"

namespace plumb {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(std::string_view text) {
  Pieces pieces;
  PreTokenizer splitter(text);
  for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) pieces.emplace_back(piece);
  return pieces;
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

std::string utf8(char32_t code) {
  std::string text;
  const auto tail = [&](int shift) { text.push_back(static_cast<char>(0x80 | (code >> shift & 0x3F))); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return text.push_back(static_cast<char>(0xC0 | code >> 6)), tail(0), text;
  if (code < 0x10000) return text.push_back(static_cast<char>(0xE0 | code >> 12)), tail(6), tail(0), text;
  return text.push_back(static_cast<char>(0xF0 | code >> 18)), tail(12), tail(6), tail(0), text;
}

/// A general regular expression engine, as the peer of the scanner.
class Regex {
 public:
  explicit Regex(std::string_view pattern) {
    int code = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                              &code, &at, nullptr));
    EXPECT_NE(code_, nullptr) << pattern << ": error " << code << " at " << at;
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }
  /// The first match from `from` on, as [begin, end); begin == npos: none.
  std::pair<std::size_t, std::size_t> find(std::string_view text, std::size_t from) const {
    const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, 0,
                                  match_.get(), nullptr);
    EXPECT_TRUE(count > 0 || count == PCRE2_ERROR_NOMATCH) << count;
    if (count <= 0) return {text.npos, text.npos};
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match_.get());
    return {bounds[0], bounds[1]};
  }
  /// Split with behaviour Isolated.
  Pieces split(const std::string& text) const {
    Pieces pieces;
    for (std::size_t at = 0; at < text.size();) {
      const auto [begin, end] = find(text, at);
      if (begin != at) pieces.push_back(text.substr(at, begin - at));
      if (begin == text.npos) break;
      pieces.push_back(text.substr(begin, end - begin));
      at = end;
    }
    return pieces;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

Pieces split_by_patterns(const std::string& text) {
  static const Regex kSteps[] = {Regex(kDeepSeekSplits[0]), Regex(kDeepSeekSplits[1]), Regex(kDeepSeekSplits[2])};
  Pieces pieces{text};
  for (const Regex& step : kSteps) {
    Pieces next;
    for (const std::string& piece : pieces)
      for (std::string& part : step.split(piece)) next.push_back(std::move(part));
    pieces = std::move(next);
  }
  return pieces;
}

/// Our class of a code point by PCRE2's tables, which are of an older Unicode.
CharClass class_by_pcre2(char32_t code) {
  static const std::pair<Regex, CharClass> kClasses[] = {{Regex("[\\r\\n]"), CharClass::kNewline},
                                                         {Regex("\\s"), CharClass::kSpace},
                                                         {Regex("[\\p{L}\\p{M}]"), CharClass::kLetter},
                                                         {Regex("\\p{N}"), CharClass::kNumber},
                                                         {Regex("[\\p{P}\\p{S}]"), CharClass::kSymbol}};
  const std::string text = utf8(code);
  for (const auto& [regex, is] : kClasses)
    if (regex.find(text, 0).first == 0) return is;
  return CharClass::kOther;
}

/// The code points that had their class already in PCRE2's Unicode.
const std::vector<char32_t>& shared_code_points() {
  static const std::vector<char32_t> kShared = [] {
    std::vector<char32_t> shared;
    for (char32_t code = 0; code < CharClasses::kCodePoints; ++code)
      if ((code < 0xD800 || code >= 0xE000) && class_by_pcre2(code) == CharClasses::get()[code]) shared.push_back(code);
    return shared;
  }();
  return kShared;
}

// Unicode 15 and 16 gave classes to code points that had none. U+180E was white space until Unicode 6.3, and still is
// for PCRE2's \s.
TEST(CharClasses, DifferFromAnOlderUnicodeOnlyWhereItHadNone) {
  std::vector<char32_t> changed;
  for (char32_t code = 0; code < CharClasses::kCodePoints; ++code)
    if (code < 0xD800 || code >= 0xE000)
      if (const CharClass theirs = class_by_pcre2(code);
          theirs != CharClasses::get()[code] && theirs != CharClass::kOther)
        changed.push_back(code);
  EXPECT_EQ(changed, std::vector<char32_t>{0x180E});
  EXPECT_GT(shared_code_points().size(), CharClasses::kCodePoints - 0x800 - 12000);
  EXPECT_EQ(CharClasses::get()[0x1C89], CharClass::kLetter);   // new in Unicode 16
  EXPECT_EQ(CharClasses::get()[0x105C0], CharClass::kLetter);  // same
}

TEST(PreTokenizer, EqualsThePatternsOnRandomTexts) {
  const auto& shared = shared_code_points();
  Rng rng{7};
  const std::u32string awkward =
      U" \t\r\n\u00A0\u3000\u0085\u2028\u200B\u0001\u001C!\"'.-(_\\]"
      U"abzAZ09\u00BD\u0663\u4E00\u9FA5\u9FA6\u3041\u3099\u309C"
      U"\u30FB\u30FC\u30FF\u30A0\u3040\u3097\u303F\u3100\U0001F600\u0301\u00E9\u00DF\uFEFF\uE000";
  for (int i = 0; i < 30000; ++i) {
    std::string text;
    const std::uint64_t mix = rng.below(5);
    for (std::uint64_t n = rng.below(30); n > 0; --n)
      text += utf8(rng.below(4) < mix ? awkward[rng.below(awkward.size())] : shared[rng.below(shared.size())]);
    ASSERT_EQ(pieces_of(text), split_by_patterns(text)) << text;
  }
}

TEST(PreTokenizer, EveryPairOfAwkwardCharactersIsCutAsThePatternsDo) {
  const std::u32string awkward = U" \t\r\n\u00A0\u0001!~aZ5\u00BD\u4E00\u3099\u30FB\u3040\U0001F600\u0301";
  for (const char32_t a : awkward)
    for (const char32_t b : awkward)
      for (const char32_t c : awkward)
        for (const char32_t d : awkward) {
          const std::string text = utf8(a) + utf8(b) + utf8(c) + utf8(d);
          ASSERT_EQ(pieces_of(text), split_by_patterns(text)) << text;
        }
}

TEST(PreTokenizer, CutsAsDocumented) {
  EXPECT_EQ(pieces_of(""), Pieces{});
  EXPECT_EQ(pieces_of("1234567890"), (Pieces{"123", "456", "789", "0"}));
  EXPECT_EQ(pieces_of("end.\n\nnext):\n"), (Pieces{"end", ".\n\n", "next", "):\n"}));
  EXPECT_EQ(pieces_of("\n    int x"), (Pieces{"\n", "   ", " int", " x"}));
  EXPECT_EQ(pieces_of("a  1"), (Pieces{"a", "  ", "1"}));
  EXPECT_EQ(pieces_of("漢字、かな"), (Pieces{"漢字", "、", "かな"}));
}

// A byte that is no part of a character is one of its own that matches nothing: it joins letters as their prefix.
TEST(PreTokenizer, BrokenUtf8IsCutByteByByte) {
  EXPECT_EQ(pieces_of("\xFF\xFE"
                      "ab"),
            (Pieces{"\xFF",
                    "\xFE"
                    "ab"}));
  EXPECT_EQ(pieces_of("a\xF0\x9F\x98 b"), (Pieces{"a", "\xF0\x9F\x98", " b"}));
  EXPECT_EQ(pieces_of("1\xC0\xB2"
                      "2"),
            (Pieces{"1", "\xC0\xB2", "2"}));  // overlong
  EXPECT_EQ(pieces_of("1\xED\xA0\x80"
                      "2"),
            (Pieces{"1", "\xED\xA0\x80", "2"}));  // a surrogate
  EXPECT_EQ(pieces_of("1\xF4\x90\x80\x80"
                      "2"),
            (Pieces{"1", "\xF4\x90\x80\x80", "2"}));
  Rng rng{9};
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::uint64_t n = rng.below(30); n > 0; --n)
      text.push_back(static_cast<char>(rng.below(2) == 0 ? rng.below(256) : 0x80 + rng.below(0x80)));
    ASSERT_EQ(joined(pieces_of(text)), text);
  }
}

// Each of these is one long run for some alternative; quadratic time would be hours.
TEST(PreTokenizer, LongRunsAreLinear) {
  constexpr int kRepeats = 1'000'000;
  const auto start = std::chrono::steady_clock::now();
  for (const char* part :
       {"a", " ", "\n", " \n", "!", "\x01", "漢", "1", "\x01 ", "!\n", "\xFF", " \xCC\x81", "ー・"}) {
    std::string text;
    for (int i = 0; i < kRepeats; ++i) text += part;
    std::size_t size = 0;
    PreTokenizer splitter(text);
    for (std::string_view piece = splitter.next(); !piece.empty(); piece = splitter.next()) size += piece.size();
    EXPECT_EQ(size, text.size()) << part;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace plumb
