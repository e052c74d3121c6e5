#include "model/python_json.h"

#include <charconv>
#include <cstring>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb {
namespace {

std::string printed(std::string_view text) {
  const auto json = python_json(text);
  return json ? *json : "refused: " + json.error().message;
}

// The right-hand sides are what CPython 3.11 prints.
TEST(PythonJson, PrintsWhatPythonPrints) {
  const std::pair<const char*, const char*> cases[] = {
      {" {\"a\":1,\n\"b\" :[true,false,null]}", R"({"a": 1, "b": [true, false, null]})"},
      {"{}", "{}"},
      {"[ ]", "[]"},
      {"[[],{}]", "[[], {}]"},
      {"2.50", "2.5"},
      {"1e5", "100000.0"},
      {"1e16", "1e+16"},
      {"123456789012345678", "123456789012345678"},
      {"1234567890123456.7", "1234567890123456.8"},
      {"12345678901234567.0", "1.2345678901234568e+16"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1.5e-7", "1.5e-07"},
      {"1e-320", "1e-320"},
      {"5e-324", "5e-324"},
      {"1e22", "1e+22"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"1e999", "Infinity"},
      {"[NaN,-Infinity,Infinity]", "[NaN, -Infinity, Infinity]"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {R"({"a":1,"b":2,"a":3})", R"({"a": 3, "b": 2})"},
      {R"("\/\u0041\u00e9\u0000\u001f\b\f\n\r\t\"\\")", "\"/A\xc3\xa9\\u0000\\u001f\\b\\f\\n\\r\\t\\\"\\\\\""},
      {"\"\x7f\xe4\xbd\xa0\"", "\"\x7f\xe4\xbd\xa0\""},
      {R"("\ud83d\ude00")", "\"\xf0\x9f\x98\x80\""},
      {R"(["\ud83d","é😀"])", R"(["\ud83d", "\u00e9\ud83d\ude00"])"},
      {R"("\ude00\ud83d")", R"("\ude00\ud83d")"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(printed(text), expected) << text;
}

TEST(PythonJson, WhatPythonRefusesIsRefused) {
  for (const char* text :
       {"",   " ",  "{",  "[1,]",   "{\"a\"}", "{\"a\":1,}", "{a:1}",       "01",  "1.",  "1.e5",  "-",
        "+1", ".5", "\"", "\"\n\"", "\"\\x\"", "\"\\u12\"",  "\"\\u12g4\"", "tru", "1 2", "[1 2]", "'a'"})
    EXPECT_TRUE(printed(text).starts_with("refused: byte ")) << text << " -> " << printed(text);
  EXPECT_EQ(printed(std::string(99, '[') + std::string(99, ']')), std::string(99, '[') + std::string(99, ']'));
  EXPECT_EQ(printed(std::string(1000000, '[')), "refused: byte 101: nested too deep");
}

TEST(PythonJson, MembersComeInOrderWithTheTextOfStrings) {
  const auto members = python_json_members(R"({"a": "x\ny", "b": [1, 2.50], "c": null, "é": {"k": "é"}})");
  ASSERT_TRUE(members);
  ASSERT_EQ(members->size(), 4u);
  EXPECT_TRUE((*members)[0].is_string);
  EXPECT_EQ((*members)[0].value, "x\ny");
  EXPECT_FALSE((*members)[1].is_string);
  EXPECT_EQ((*members)[1].value, "[1, 2.5]");
  EXPECT_EQ((*members)[3].key, "é");
  EXPECT_EQ((*members)[3].value, R"({"k": "é"})");
  EXPECT_TRUE(python_json_members("{}")->empty());
  for (const char* text : {"[1]", "\"x\"", "3", "{", R"({"a":"\ud800"})", R"({"\ud800":1})"})
    EXPECT_FALSE(python_json_members(text)) << text;
}

TEST(PythonJson, FloatsReadBackAsTheSameValue) {
  Rng rng{5};
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = rng.next();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!(value - value == 0)) continue;
    const std::string text = python_float(value);
    ASSERT_EQ(std::strtod(text.c_str(), nullptr), value) << text;
    ASSERT_NE(text.find_first_of(".e"), std::string::npos) << text;
    ASSERT_EQ(printed(text), text);
  }
}

}  // namespace
}  // namespace plumb
