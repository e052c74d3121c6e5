#pragma once

#include <cstdint>
#include <vector>

namespace plumb {

/// What DeepSeek's pre-tokenizer tells apart. L and M need no telling apart: it never asks for one without the other in
/// a way that matters (pre_tokenizer.h); P and S neither.
enum class CharClass : std::uint8_t {
  kOther,    // control, format, private, unassigned
  kLetter,   // \p{L} \p{M}
  kNumber,   // \p{N}
  kSymbol,   // \p{P} \p{S}
  kSpace,    // \s without CR and LF
  kNewline,  // CR, LF
};

/// The classes of all code points by Unicode 16.0 (unicode_classes.py).
class CharClasses {
 public:
  static constexpr std::size_t kCodePoints = 0x110000;

  static const CharClasses& get() {
    static const CharClasses classes;
    return classes;
  }
  /// `code` < kCodePoints.
  CharClass operator[](char32_t code) const { return of_[code]; }

 private:
  CharClasses();
  std::vector<CharClass> of_;
};

}  // namespace plumb
