#include "model/pre_tokenizer.h"

namespace plumb {
namespace {

using enum CharClass;
constexpr char32_t kInvalid = CharClasses::kCodePoints;

struct Decoded {
  char32_t code;
  std::uint8_t size;
};

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

/// The character at the start of `bytes`, which is not empty; {kInvalid, 1} where no well-formed one starts.
Decoded decode(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first < 0x80) return {first, 1};
  const std::uint8_t size = first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
  if (size == 1 || bytes.size() < size) return {kInvalid, 1};
  char32_t code = first & (0x7Fu >> size);
  for (std::uint8_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(bytes[i]);
    if ((next & 0xC0) != 0x80) return {kInvalid, 1};
    code = code << 6 | (next & 0x3Fu);
  }
  // Overlong, a surrogate, or past the last code point.
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[size] || (code >= 0xD800 && code < 0xE000) || code >= CharClasses::kCodePoints)
    return {kInvalid, 1};
  return {code, size};
}

bool is_east_asian(char32_t code) { return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF); }

}  // namespace

PreTokenizer::Char PreTokenizer::read(std::size_t at) const {
  const auto [code, size] = decode(bytes_.substr(at));
  if (code == kInvalid) return {kOther, false, size};
  return {classes_[code], is_east_asian(code), size};
}

bool PreTokenizer::ends(std::size_t at, bool east_asian) const {
  if (at == bytes_.size()) return true;
  const Char c = read(at);
  return c.is == kNumber || c.east_asian != east_asian;
}

bool PreTokenizer::is(std::size_t at, CharClass wanted, bool east_asian) const {
  if (at == bytes_.size()) return false;
  const Char c = read(at);
  return c.is == wanted && c.east_asian == east_asian;
}

std::size_t PreTokenizer::run(std::size_t at, CharClass wanted, bool east_asian) const {
  while (at < bytes_.size()) {
    const Char c = read(at);
    if (c.is != wanted || c.east_asian != east_asian) break;
    at += c.size;
  }
  return at;
}

std::size_t PreTokenizer::numbers_end(std::size_t at) const {
  constexpr int kMostNumbers = 3;
  for (int i = 0; i < kMostNumbers && is(at, kNumber, false); ++i) at += read(at).size;
  return at;
}

// The last three alternatives. A run of white space with a CR or LF in it matches up to the last of them. Else it
// matches whole at the end of the piece, and without its last character before anything else, unless that is all.
std::size_t PreTokenizer::spaces_end(std::size_t at, bool east_asian) const {
  std::size_t end = at, last = at, after_newline = at;
  while (end < bytes_.size()) {
    const Char c = read(end);
    if ((c.is != kSpace && c.is != kNewline) || c.east_asian != east_asian) break;
    last = end;
    end += c.size;
    if (c.is == kNewline) after_newline = end;
  }
  if (after_newline != at) return after_newline;
  return last == at || ends(end, east_asian) ? end : last;
}

// No class of step 3 holds a number, and a combining mark as the optional prefix of the second alternative would be
// part of the run it precedes: so one class for letters and marks is enough.
std::size_t PreTokenizer::match_end(std::size_t at, const Char& first) const {
  const bool east_asian = first.east_asian;
  const std::size_t second = at + first.size;
  if (first.is == kSymbol) {
    if (is_ascii(bytes_[at]) && second < bytes_.size() && is_ascii_letter(bytes_[second])) {
      std::size_t end = second + 1;
      while (end < bytes_.size() && is_ascii_letter(bytes_[end])) ++end;
      return end;
    }
    return run(run(second, kSymbol, east_asian), kNewline, east_asian);
  }
  if (first.is == kLetter) return run(second, kLetter, east_asian);
  if (first.is != kNewline) {
    if (const std::size_t end = run(second, kLetter, east_asian); end != second) return end;
    if (first.is == kOther) return at;
    if (bytes_[at] == ' ')
      if (const std::size_t end = run(second, kSymbol, east_asian); end != second)
        return run(end, kNewline, east_asian);
  }
  return spaces_end(at, east_asian);
}

std::string_view PreTokenizer::next() {
  if (at_ == bytes_.size()) return {};
  const std::size_t begin = at_;
  const Char first = read(begin);
  if (first.is == kNumber) {
    at_ = numbers_end(begin);
  } else if (at_ = match_end(begin, first); at_ == begin) {
    // What matches nothing, up to where something does.
    Char c = first;
    do {
      at_ += c.size;
      if (ends(at_, first.east_asian)) break;
      c = read(at_);
    } while (match_end(at_, c) == at_);
  }
  return bytes_.substr(begin, at_ - begin);
}

}  // namespace plumb
