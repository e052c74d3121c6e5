#include "tensor/strict_json.h"

#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace plumb {
namespace {

using nlohmann::json;

std::string message(const std::string& text) {
  const auto document = parse_json_strictly(text, "f");
  return document ? "accepted" : document.error().message;
}

TEST(StrictJson, RefusesDepthWithoutBuildingIt) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(message(nested(64)), "accepted");
  EXPECT_EQ(message(nested(65)), "f: nested deeper than 64");
  EXPECT_EQ(message(nested(500000)), "f: nested deeper than 64");
  EXPECT_EQ(message(std::string(500000, '[')), "f: nested deeper than 64");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"({"a":)";
  EXPECT_EQ(message(objects), "f: nested deeper than 64");
}

TEST(StrictJson, RefusesAKeyTwiceAndShowsItCut) {
  EXPECT_EQ(message(R"({"a":{"b":1},"b":2})"), "accepted");
  EXPECT_EQ(message(R"({"a":1,"a":1})"), "f: key 'a' appears twice in one object");
  const std::string key = '"' + std::string(1000, 'k') + '"';
  EXPECT_LT(message("{" + key + ":1," + key + ":1}").size(), 200u);
}

// Each of these took minutes when every end of a container, or every key, looked through what was there before.
TEST(StrictJson, TakesTimeInProportionToTheTextWhateverItsShape) {
  constexpr int kCount = 300000;
  std::string objects = "[", keys = "{", nested_keys = "{";
  for (int i = 0; i < kCount; ++i) {
    objects += i > 0 ? ",{}" : "{}";
    keys += fmt::format("{}\"k{}\":{}", i > 0 ? "," : "", i, i);
    nested_keys += fmt::format("{}\"k{}\":[{{}}]", i > 0 ? "," : "", i);
  }
  objects += "]";
  keys += "}";
  nested_keys += "}";
  const auto started = std::chrono::steady_clock::now();
  for (const std::string& text : {objects, keys, nested_keys}) {
    const auto unordered = parse_json_strictly(text, "f");
    const auto ordered = parse_ordered_json_strictly(text, "f");
    ASSERT_TRUE(unordered && ordered);
    EXPECT_EQ(unordered->size(), static_cast<std::size_t>(kCount));
    EXPECT_EQ(ordered->size(), static_cast<std::size_t>(kCount));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(60));
}

TEST(StrictJson, GivesTheDocumentThatTheLibraryGives) {
  for (const std::string text :
       {"null", "true", "-7", "18446744073709551615", "1.5e-3", "\"a\\u00e9\\n\"", "[]", "{}",
        "[[],{},[1,[2,3]],\"x\"]", R"({"z":{"b":[1,{"c":null}],"a":false},"y":[{"q":-0.0}],"a":""})"}) {
    const auto unordered = parse_json_strictly(text, "f");
    const auto ordered = parse_ordered_json_strictly(text, "f");
    ASSERT_TRUE(unordered && ordered) << text;
    EXPECT_EQ(*unordered, json::parse(text));
    EXPECT_EQ(ordered->dump(), nlohmann::ordered_json::parse(text).dump());
  }
}

TEST(StrictJson, RefusesMoreValuesThanAllowed) {
  const JsonLimits limits{.max_depth = 2, .max_values = 4};
  EXPECT_TRUE(parse_json_strictly("[1,[2]]", "f", limits));
  EXPECT_EQ(parse_json_strictly("[1,2,3,4]", "f", limits).error().message, "f: more than 4 values");
  EXPECT_EQ(parse_json_strictly(R"({"a":1,"b":2})", "", limits).error().message, "more than 4 values");
  EXPECT_EQ(parse_json_strictly("[[[]]]", "", limits).error().message, "nested deeper than 2");
}

// Place and expectation in plain words; neither the library's prefixes nor the document's text.
TEST(StrictJson, SaysWhereTheTextIsWrongAndWhatWasExpected) {
  EXPECT_EQ(message(""),
            "f: not valid JSON: line 1, column 1: unexpected end of input, expected '[', '{', or a literal");
  EXPECT_EQ(message("{\n  \"a\": 1,\n}"),
            "f: not valid JSON: line 3, column 1: unexpected '}', expected string literal");
  EXPECT_EQ(message("[1 2]"), "f: not valid JSON: line 1, column 4: unexpected number literal, expected ']'");
  EXPECT_EQ(message("[1] x"), "f: not valid JSON: line 1, column 5: invalid literal, expected end of input");
  EXPECT_EQ(message("[1" + std::string(400, '0') + "]"),
            "f: not valid JSON: a number is too large for 64-bit floating point");
  for (const std::string text :
       {"nul", "\"\xff\"", "\"\\q\"", "[01]", "\"a\n\"", "\xEF\xBB", "{1:2}", "[-]", "\"\\ud800\""}) {
    const std::string said = message(text);
    EXPECT_EQ(said.rfind("f: not valid JSON: line ", 0), 0u) << said;
    EXPECT_EQ(said.find("json.exception"), said.npos) << said;
    EXPECT_EQ(said.find("last read"), said.npos) << said;
    EXPECT_EQ(said.find("syntax error"), said.npos) << said;
  }
}

template <class Act>
std::string complaint(Act act) {
  try {
    act();
  } catch (const json::exception& e) {
    return json_complaint(e);
  }
  return "nothing was thrown";
}

TEST(JsonComplaint, HasWordsOfItsOwnForEveryException) {
  const json object = {{"a", 1}}, number = 7;
  EXPECT_EQ(complaint([&] { (void)object.at("b"); }), "key 'b' is missing");
  EXPECT_EQ(complaint([&] { (void)number.get<std::string>(); }), "a value must be string, but is number");
  EXPECT_EQ(complaint([&] { (void)number.get_ref<const std::string&>(); }),
            "a value has another type than it must have: number");
  EXPECT_EQ(complaint([&] { (void)number.at("b"); }), "a value has another type than it must have");
  EXPECT_EQ(complaint([&] { (void)json::array().at(3); }), "a value has another type than it must have");
}

TEST(Shown, PrintsScalarsOnlyAndBounded) {
  EXPECT_EQ(shown(json(1.5)), "1.5");
  EXPECT_EQ(shown(json("a")), "\"a\"");
  EXPECT_EQ(shown(json(nullptr)), "null");
  EXPECT_EQ(shown(json{{"a", 1}}), "an object");
  json deep;
  for (int i = 0; i < 100000; ++i) deep = json::array({std::move(deep)});
  EXPECT_EQ(shown(deep), "an array");
  EXPECT_LT(shown(json(std::string(100000, 'x'))).size(), 100u);
}

}  // namespace
}  // namespace plumb
