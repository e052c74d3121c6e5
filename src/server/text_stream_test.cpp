#include "server/text_stream.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb::server {
namespace {

std::string decode_in_pieces(std::string_view bytes, Rng& rng) {
  Utf8Stream stream;
  std::string text;
  while (!bytes.empty()) {
    const std::size_t n = 1 + rng.below(std::min<std::size_t>(3, bytes.size()));
    text += stream.push(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
  return text + stream.finish();
}

TEST(Utf8Stream, HalfACharacterIsHeldUntilItIsWhole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xf0\x9f"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80"
                        "b"),
            "\xf0\x9f\x98\x80"
            "b");
  EXPECT_EQ(stream.push("\xe6"), "");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(stream.finish(), "");
}

// Expected texts are those of Python's bytes.decode("utf-8", "replace").
TEST(Utf8Stream, EachMaximalInvalidPartBecomesOneReplacement) {
  const std::string r = "\xef\xbf\xbd";
  const std::pair<std::string, std::string> cases[] = {
      {"\x80", r},
      {"\xc0\xaf", r + r},
      {"\xe0\x80\xaf", r + r + r},
      {"\xed\xa0\x80", r + r + r},
      {"\xf4\x90\x80\x80", r + r + r + r},
      {"\xf1\x80\x80"
       "A",
       r + "A"},
      {"\xe2\x82"
       "A\xff",
       r + "A" + r},
      {"\xf0\x9f\xf0\x9f\x98\x80", r + "\xf0\x9f\x98\x80"},
  };
  Rng rng(1);
  for (const auto& [bytes, text] : cases)
    for (int i = 0; i < 8; ++i) EXPECT_EQ(decode_in_pieces(bytes, rng), text);
}

TEST(Utf8Stream, CountsCharactersNotBytes) { EXPECT_EQ(count_characters("a\xc3\xa9\xf0\x9f\x98\x80"), 3u); }

TEST(StopMatcher, NeverShowsTextThatMayBeTheStartOfAStopString) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.push("abST"), "ab");
  EXPECT_EQ(matcher.push("O"), "");
  EXPECT_EQ(matcher.push("xS"), "STOx");
  EXPECT_EQ(matcher.push("TOPtail"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.match(), "STOP");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, HeldTextComesOutAtTheEnd) {
  StopMatcher matcher({"\n\n"});
  EXPECT_EQ(matcher.push("a\n"), "a");
  EXPECT_EQ(matcher.finish(), "\n");
}

// The meaning in one line a position: end at the first byte that completes a stop string, the longest of those.
std::pair<std::string, bool> cut_plainly(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopMatcher, EqualsThePlainDefinitionHoweverTheTextIsCut) {
  Rng rng(7);
  const auto word = [&rng](std::uint64_t low, std::uint64_t high) {
    std::string text(low + rng.below(high - low + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + rng.below(2));
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (std::uint64_t i = 0; i < 1 + rng.below(3); ++i) stops.push_back(word(1, 6));
    const std::string text = word(0, 24);
    StopMatcher matcher(stops);
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + rng.below(4);
      shown += matcher.push(text.substr(at, n));
      at += n;
      const auto [expected, ends] = cut_plainly(text, stops);
      ASSERT_TRUE(expected.starts_with(shown)) << "shown too early: " << shown << " of " << text;
    }
    shown += matcher.finish();
    EXPECT_EQ(std::pair(shown, matcher.matched()), cut_plainly(text, stops)) << text;
  }
}

}  // namespace
}  // namespace plumb::server
