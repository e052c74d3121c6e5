#pragma once

#include <cstdint>
#include <string_view>

#include "model/unicode_classes.h"

namespace plumb {

/// The three patterns of DeepSeek-V3's and V4's pre-tokenizer, each a Split with behaviour Isolated on the pieces of
/// the one before: matches and what lies between them become pieces. A piece is all that the next pattern sees, so its
/// end is the end of the text for the look-ahead.
inline constexpr std::string_view kDeepSeekSplits[] = {R"(\p{N}{1,3})", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
                                                       R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
                                                       "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                                                       " ?[\\p{P}\\p{S}]+[\r\n]*|"
                                                       "\\s*[\r\n]+|"
                                                       R"(\s+(?!\S)|\s+)"};

/// Cuts bytes into the pieces of kDeepSeekSplits, in order, without loss: the pieces joined are the bytes. A byte that
/// is no part of well-formed UTF-8 (RFC 3629) is a character of its own, of class kOther. Linear in the size.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::string_view bytes) : bytes_(bytes), classes_(CharClasses::get()) {}

  /// The next piece; empty at the end.
  std::string_view next();

 private:
  /// One character as step 3 sees it.
  struct Char {
    CharClass is;
    bool east_asian;  // of the class of step 2
    std::uint8_t size;
  };
  Char read(std::size_t at) const;
  /// Whether the piece of step 2 ends before `at`, so that step 3 sees nothing there.
  bool ends(std::size_t at, bool east_asian) const;
  bool is(std::size_t at, CharClass wanted, bool east_asian) const;
  /// The end of the longest run of `wanted` from `at` on.
  std::size_t run(std::size_t at, CharClass wanted, bool east_asian) const;
  std::size_t numbers_end(std::size_t at) const;
  /// The end of the match of step 3 at `at`; `at` itself when nothing matches there.
  std::size_t match_end(std::size_t at, const Char& first) const;
  std::size_t spaces_end(std::size_t at, bool east_asian) const;

  std::string_view bytes_;
  const CharClasses& classes_;
  std::size_t at_ = 0;
};

}  // namespace plumb
