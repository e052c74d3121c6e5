#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plumb::server {

/// Turns bytes that arrive in pieces into valid UTF-8: never half a character; each maximal invalid part becomes one
/// U+FFFD. The text does not depend on where the pieces were cut.
class Utf8Stream {
 public:
  /// The characters that `bytes` complete.
  std::string push(std::string_view bytes);
  /// Ends the stream: an unfinished character becomes U+FFFD.
  std::string finish();

 private:
  void step(unsigned char byte, std::string& out);

  std::string open_;           // first bytes of an unfinished character
  std::size_t missing_ = 0;    // continuation bytes it still needs
  unsigned char low_ = 0x80;   // range of the next continuation byte: it excludes overlong forms, surrogates and
  unsigned char high_ = 0xbf;  // values above U+10FFFF
};

/// The number of characters of a valid UTF-8 text.
std::size_t count_characters(std::string_view utf8);

/// Finds stop strings in text that arrives in pieces and holds back what might be the start of one.
///
/// The text ends before the stop string whose last byte comes first; of several that end there, before the longest.
class StopMatcher {
 public:
  StopMatcher() = default;
  /// `stops`: none empty.
  explicit StopMatcher(std::vector<std::string> stops);

  /// The text that can now be shown. After a match: nothing more.
  std::string push(std::string_view text);
  /// Ends the stream: what was held back.
  std::string finish();
  bool matched() const { return match_ >= 0; }
  /// The stop string that matched; call only when matched().
  const std::string& match() const { return patterns_[static_cast<std::size_t>(match_)].text; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> border;  // border[i]: longest proper border of the first i bytes
    std::size_t length = 0;           // bytes matched so far
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  int match_ = -1;
};

}  // namespace plumb::server
