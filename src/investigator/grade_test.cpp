#include "investigator/grade.h"

#include <gtest/gtest.h>

namespace plumb::investigator {
namespace {

Ask ask() {
  Ask a;
  a.expected = "K7-42-QX";
  a.asked = 0;
  a.facts = {{"code", "bakoru", "K7-42-QX", 2}, {"pin", "delimo", "AB12", 5}};
  return a;
}

Reply says(const std::string& text, const std::string& finish = "stop") {
  Reply r;
  r.kind = Reply::Kind::answered;
  r.status = 200;
  r.text = text;
  r.finish_reason = finish;
  return r;
}

struct Case {
  const char* text;
  const char* finish;
  Grade grade;
  const char* detail;
};

TEST(Grade, ClassesReplies) {
  const std::vector<Case> cases{
      {" K7-42-QX", "stop", Grade::right, ""},
      {"The code is K7-42-QX.", "stop", Grade::right, ""},
      {"K7-42-QX K7-42-QX", "stop", Grade::right, ""},
      {" K7-42-QX</call><eos>", "length", Grade::right, ""},
      {"<think>Was it AB12?</think>K7-42-QX", "stop", Grade::right, ""},
      {"<think>It was K7-42-QX", "length", Grade::no_answer, "length limit inside reasoning"},
      {"<think>It was K7-42-QX", "stop", Grade::no_answer, "reasoning without an end"},
      {"<think>It was K7-42-QX</think>", "stop", Grade::no_answer, "empty: the answer stands in the reasoning alone"},
      {"The code is K7-42", "length", Grade::no_answer, "length limit"},
      {"The code is K7-42", "stop", Grade::wrong, "unknown code"},
      {"AB12", "stop", Grade::wrong, "another planted fact (turn 5)"},
      {"K7-42-QX or AB12", "stop", Grade::wrong, "another planted fact (turn 5)"},
      {"K7-42-QX or ZZ99", "stop", Grade::wrong, "the expected code among others"},
      {"K7-42-QY", "stop", Grade::wrong, "one character off"},
      {"K7-42-Q", "stop", Grade::wrong, "one character off"},
      {"K7-24-QX", "stop", Grade::wrong, "two characters off"},
      {"P1-33-ZZ", "stop", Grade::wrong, "unknown code"},
      {"k7-42-qx", "stop", Grade::wrong, "unknown code"},
      {"the lazy dog", "stop", Grade::wrong, "no code"},
      {"This is your first message.", "stop", Grade::wrong, "denial"},
      {"I don\xe2\x80\x99t have that code.", "stop", Grade::wrong, "denial"},
      {"I'm sorry, I can't help with that.", "stop", Grade::refused, "refusal"},
      {"", "stop", Grade::no_answer, "empty"},
      {"  \n", "length", Grade::no_answer, "empty"},
      {"the the the the the", "length", Grade::no_answer, "loop"},
      {"red blue red blue red blue red blue red", "stop", Grade::no_answer, "loop"},
      {"Q1-23-45 Q1-23-45 Q1-23-45 Q1-23-45 Q1-23-45", "length", Grade::no_answer, "loop"},
      {"zzzzzzzzzzzzzzzzzzz", "length", Grade::no_answer, "loop"},
      {"well let me think about it for", "length", Grade::no_answer, "length limit"},
      {"K7", "stop", Grade::wrong, "no code"},
  };
  for (const Case& c : cases) {
    const Graded g = grade_reply(says(c.text, c.finish), ask());
    EXPECT_EQ(grade_name(g.grade), grade_name(c.grade)) << c.text;
    EXPECT_EQ(g.detail, c.detail) << c.text;
  }
}

TEST(Grade, OnlyInfrastructureIsUnresolved) {
  Reply r;
  r.kind = Reply::Kind::infrastructure;
  r.text = "connection refused";
  EXPECT_EQ(grade_reply(r, ask()).grade, Grade::infrastructure);
  r.kind = Reply::Kind::unparsable;
  EXPECT_EQ(grade_reply(r, ask()).grade, Grade::no_answer);
  r.kind = Reply::Kind::rejected;
  EXPECT_EQ(grade_reply(r, ask()).grade, Grade::refused);
  EXPECT_EQ(grade_reply(says("K7-42-QX", "content_filter"), ask()).grade, Grade::refused);
  EXPECT_FALSE(is_failure(Grade::infrastructure));
  EXPECT_FALSE(is_failure(Grade::right));
  EXPECT_TRUE(is_failure(Grade::no_answer));
}

TEST(Grade, CodeStringsAreWholeRuns) {
  EXPECT_EQ(code_strings("a K7-42-QX, AB12. 1234 ABC A1- --A1B2- I am 12"),
            (std::vector<std::string>{"K7-42-QX", "AB12", "1234", "A1B2"}));
  EXPECT_TRUE(code_strings("").empty());
}

TEST(Grade, RepetitionCompresses) {
  std::string loop;
  for (int i = 0; i < 100; ++i) loop += " the old mill";
  EXPECT_LT(gzip_ratio(loop), 0.1);
  EXPECT_GT(gzip_ratio("we walked along the shore and they painted it"), 0.8);
  EXPECT_EQ(gzip_ratio(""), 0);
}

TEST(Grade, NamesRoundTrip) {
  for (const Grade g : {Grade::right, Grade::wrong, Grade::no_answer, Grade::refused, Grade::infrastructure})
    EXPECT_EQ(parse_grade(grade_name(g)).value(), g);
  EXPECT_FALSE(parse_grade("fine"));
}

}  // namespace
}  // namespace plumb::investigator
