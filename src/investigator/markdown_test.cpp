#include "investigator/markdown.h"

#include <gtest/gtest.h>

namespace plumb::investigator {
namespace {

TEST(Markdown, ACodeSpanShowsWhatAServerReplied) {
  EXPECT_EQ(code_span(" K7-42-QX"), "`K7-42-QX`");
  EXPECT_EQ(code_span("5888</call>"), "`5888</call>`");
  EXPECT_EQ(code_span("<think>\nno"), "`<think>\\nno`");
  EXPECT_EQ(code_span("a `b` ``c"), "```a `b` ``c```");
  EXPECT_EQ(code_span("`b"), "`` `b ``");
  EXPECT_EQ(code_span("a|b<`"), "<code>a&#124;b&#60;&#96;</code>");
  EXPECT_EQ(code_span(" \n"), "(empty)");
  EXPECT_EQ(code_span(""), "(empty)");
}

TEST(Markdown, NoCellSplitsOrEnds) {
  for (const char* text : {"a|b", "\\|", "`|`", "|", "x\n| y", "``\\`|"}) {
    for (const std::string& shown : {code_span(text), plain_markdown(text)}) {
      EXPECT_EQ(shown.find('|'), std::string::npos) << shown;
      EXPECT_EQ(shown.find('\n'), std::string::npos) << shown;
    }
  }
}

TEST(Markdown, PlainTextHasNoMarkup) {
  EXPECT_EQ(plain_markdown("<b> *x* _y_ a_b [l](u) `c` a&b ~d"),
            "&#60;b> \\*x\\* \\_y\\_ a_b \\[l\\](u) \\`c\\` a&#38;b &#126;d");
  EXPECT_EQ(plain_markdown("# title"), "\\# title");
}

TEST(Markdown, LongTextIsCutBetweenCharacters) {
  std::string text = "a";
  for (int i = 0; i < 400; ++i) text += "ü";
  const std::string shown = code_span(text);
  EXPECT_LE(shown.size(), kMaxShownBytes + 8);
  EXPECT_TRUE(shown.ends_with("…`")) << shown;
  EXPECT_EQ(shown.find("\xC3…"), std::string::npos);
}

}  // namespace
}  // namespace plumb::investigator
