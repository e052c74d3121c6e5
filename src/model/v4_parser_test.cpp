#include "model/v4_parser.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "model/python_json.h"
#include "model/reply_text.h"
#include "model/v4_chat.h"

namespace plumb {
namespace {

const ChatTool kWeather{.name = "get_weather", .function = "", .properties = {"city", "days"}, .required = {"city"}};
const ChatTool kNow{.name = "now", .function = "", .properties = {}, .required = {}};

const ReplyOptions kTools{.tools_active = true, .tools = {kWeather, kNow}};

// Tags are written with "|DSML|" here, for reading's sake.
std::string marked(std::string_view text, std::string_view marker = v4::kDsml) {
  constexpr std::string_view kShort = "|DSML|";
  std::string out;
  for (std::size_t at = 0; (at = text.find(kShort)) != text.npos; text.remove_prefix(at + kShort.size()))
    (out += text.substr(0, at)) += marker;
  return out += text;
}

// The whole answer at once.
ReplyText read(const std::string& text, const ReplyOptions& options = kTools, bool thinks = false) {
  const auto parser = v4_reply_parser(options, thinks);
  std::vector<ReplyEvent> events;
  parser->push(marked(text), events);
  parser->finish(events);
  ReplyText out;
  for (const ReplyEvent& event : events) out.add(event);
  return out;
}

const std::string kOslo =
    "<|DSML|tool_calls>\n<|DSML|invoke name=\"get_weather\">\n"
    "<|DSML|parameter name=\"city\" string=\"true\">Oslo</|DSML|parameter>\n"
    "<|DSML|parameter name=\"days\" string=\"false\">2</|DSML|parameter>\n"
    "</|DSML|invoke>\n</|DSML|tool_calls>";
const std::string kOsloArguments = R"({"city": "Oslo", "days": 2})";

std::string invoke(const std::string& name, const std::string& inside) {
  return "<|DSML|invoke name=\"" + name + "\">\n" + inside + "</|DSML|invoke>\n";
}
std::string block(const std::string& inside) { return "<|DSML|tool_calls>\n" + inside + "</|DSML|tool_calls>"; }
std::string parameter(const std::string& key, const std::string& flag, const std::string& value) {
  return "<|DSML|parameter name=\"" + key + "\" string=\"" + flag + "\">" + value + "</|DSML|parameter>\n";
}
std::string arguments_of(const std::string& inside, const char* name = "get_weather") {
  const ReplyText reply = read(block(invoke(name, inside)));
  return reply.calls.size() == 1 ? reply.calls[0].arguments : "no call";
}

TEST(V4Parser, SplitsThinkingFromTheAnswer) {
  const ReplyText reply = read("I think.\n\n</think>So be it.\n", kTools, true);
  EXPECT_EQ(reply.reasoning, "I think.\n\n");
  EXPECT_EQ(reply.content, "So be it.\n");
  EXPECT_TRUE(reply.warnings.empty());
  EXPECT_EQ(read("So be it.").content, "So be it.");
}

TEST(V4Parser, ReadsAWellFormedTurn) {
  const ReplyText reply = read("Two calls.</think>Checking.\n\n" + kOslo, kTools, true);
  EXPECT_EQ(reply.reasoning, "Two calls.");
  EXPECT_EQ(reply.content, "Checking.");
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.calls[0].name, "get_weather");
  EXPECT_EQ(reply.calls[0].arguments, kOsloArguments);
  EXPECT_TRUE(reply.warnings.empty());
}

TEST(V4Parser, ReadsSeveralCallsAndCallsWithoutArguments) {
  const ReplyText reply =
      read(block(invoke("now", "\n") + invoke("get_weather", parameter("city", "true", "B\n\"x\""))));
  ASSERT_EQ(reply.calls.size(), 2u);
  EXPECT_EQ(reply.calls[0].arguments, "{}");
  EXPECT_EQ(reply.calls[1].arguments, R"({"city": "B\n\"x\""})");
}

TEST(V4Parser, WithoutToolsABlockIsText) {
  const ReplyText reply = read("x\n\n" + kOslo, {});
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_TRUE(reply.content.starts_with("x\n\n<｜DSML｜tool_calls>"));
  EXPECT_TRUE(reply.content.ends_with("</｜DSML｜tool_calls>"));
}

TEST(V4Parser, ABlockInsideTheThinkingEndsIt) {
  ReplyText reply = read("Hm.\n\n" + kOslo, kTools, true);
  EXPECT_EQ(reply.reasoning, "Hm.");
  EXPECT_EQ(reply.content, "");
  EXPECT_EQ(reply.calls.size(), 1u);
  ReplyOptions text = kTools;
  text.calls_in_reasoning = false;
  reply = read("Hm.\n\n" + kOslo + "</think>a", text, true);
  EXPECT_TRUE(reply.reasoning.ends_with("tool_calls>"));
  EXPECT_EQ(reply.content, "a");
  EXPECT_TRUE(reply.calls.empty());
}

TEST(V4Parser, StrayThinkTokensAreSkipped) {
  ReplyText reply = read("a</think>b</think>c", kTools, true);
  EXPECT_EQ(reply.reasoning, "a");
  EXPECT_EQ(reply.content, "bc");
  EXPECT_EQ(reply.warnings, (std::vector<std::string>{"second_end_of_thinking"}));
  EXPECT_EQ(read("<think>a</think>b", kTools, true).reasoning, "a");
  EXPECT_EQ(read("<think>b").content, "b");
  EXPECT_EQ(read("b <think> c").content, "b <think> c");
}

TEST(V4Parser, ThinkingWithoutEndIsThinking) {
  const ReplyText reply = read("and then </thin", kTools, true);
  EXPECT_EQ(reply.reasoning, "and then </thin");
  EXPECT_EQ(reply.content, "");
  EXPECT_EQ(reply.warnings, (std::vector<std::string>{"unterminated_reasoning"}));
}

TEST(V4Parser, LeadingNewlinesAreRemovedUnlessKept) {
  ReplyText reply = read("\n\na\n</think>\n\nb\n", kTools, true);
  EXPECT_EQ(reply.reasoning, "a\n");
  EXPECT_EQ(reply.content, "b\n");
  ReplyOptions keeps = kTools;
  keeps.trim_leading_newlines = false;
  reply = read("\n\na</think>\n\nb", keeps, true);
  EXPECT_EQ(reply.reasoning, "\n\na");
  EXPECT_EQ(reply.content, "\n\nb");
}

TEST(V4Parser, WhiteSpaceBeforeABlockIsNoContent) {
  EXPECT_EQ(read("a \n\t\n" + kOslo).content, "a");
  EXPECT_EQ(read("\n\n" + kOslo).content, "");
}

TEST(V4Parser, WhatFollowsABlockIsLeftOut) {
  const ReplyText reply = read(kOslo + "\n more");
  EXPECT_EQ(reply.content, "");
  EXPECT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.warnings, (std::vector<std::string>{"text_after_block"}));
}

TEST(V4Parser, AnswerIsCompleteAtTheEndOfTheBlockOrOfTheOnlyCall) {
  const auto complete = [](const std::string& text, const ReplyOptions& options) {
    const auto parser = v4_reply_parser(options, false);
    std::vector<ReplyEvent> events;
    parser->push(marked(text), events);
    return parser->complete();
  };
  EXPECT_FALSE(complete(kOslo.substr(0, kOslo.size() - 1), kTools));
  EXPECT_TRUE(complete(kOslo, kTools));
  ReplyOptions one = kTools;
  one.one_call = true;
  const std::string two = "<|DSML|tool_calls>\n" + invoke("now", "") + invoke("now", "");
  EXPECT_FALSE(complete(two, kTools));
  EXPECT_TRUE(complete(two, one));
  EXPECT_EQ(read(two + "</|DSML|tool_calls>", one).calls.size(), 1u);
}

TEST(V4Parser, AnInvokeWithoutItsBlockIsACallOfADeclaredFunction) {
  ReplyText reply = read("Look.\n" + invoke("now", ""));
  EXPECT_EQ(reply.content, "Look.");
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.calls[0].name, "now");
  reply = read("Look.\n" + invoke("rm", "") + "x");
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_EQ(reply.content, "Look.\n<｜DSML｜invoke name=\"rm\">\n</｜DSML｜invoke>\nx");
  EXPECT_EQ(read("a <|DSML|invoke name=\"no").content, "a <｜DSML｜invoke name=\"no");
}

TEST(V4Parser, UnknownFunctionsAndSchemaViolationsPassWithAWarning) {
  ReplyText reply = read(block(invoke("rm", parameter("x", "true", "y"))));
  EXPECT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.warnings, (std::vector<std::string>{"unknown_tool"}));
  reply = read(block(invoke("get_weather", parameter("days", "false", "1"))));
  EXPECT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.warnings, (std::vector<std::string>{"schema_violation"}));
}

TEST(V4Parser, ValuesThatAreNoJsonBecomeStrings) {
  EXPECT_EQ(arguments_of(parameter("city", "false", "Oslo \"x\"")), R"({"city": "Oslo \"x\""})");
  EXPECT_EQ(arguments_of(parameter("city", "false", "[1, {\"a\": null}]")), R"({"city": [1, {"a": null}]})");
  EXPECT_EQ(read(block(invoke("get_weather", parameter("city", "false", "Oslo")))).warnings,
            (std::vector<std::string>{"invalid_json_value"}));
  // A string stays as generated, also where it looks like a tag or an entity.
  EXPECT_EQ(arguments_of(parameter("city", "true", "a &lt; <b> </｜DSML｜para 2>")),
            R"({"city": "a &lt; <b> </｜DSML｜para 2>"})");
}

TEST(V4Parser, ABareObjectIsTheArguments) {
  EXPECT_EQ(arguments_of("{\"city\": \"Oslo\"}\n"), R"({"city": "Oslo"})");
  const ReplyText reply = read(block(invoke("get_weather", "{\"city\": \n")));
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_TRUE(reply.content.starts_with("<｜DSML｜tool_calls>")) << reply.content;
}

TEST(V4Parser, WrappedArgumentsAreUnwrapped) {
  for (const char* flag : {"true", "false"})
    for (const char* key : {"arguments", "input"}) {
      const ReplyText reply = read(block(invoke("get_weather", parameter(key, flag, R"({"city": "Oslo"})"))));
      ASSERT_EQ(reply.calls.size(), 1u);
      EXPECT_EQ(reply.calls[0].arguments, R"({"city": "Oslo"})");
      EXPECT_EQ(reply.warnings, (std::vector<std::string>{"unwrapped_arguments"}));
    }
  EXPECT_EQ(arguments_of(parameter("arguments", "true", "no object")), R"({"arguments": "no object"})");
  EXPECT_EQ(arguments_of(parameter("input", "true", "{}") + parameter("city", "true", "x")),
            R"({"input": "{}", "city": "x"})");
  EXPECT_EQ(arguments_of(parameter("arguments", "false", "{}"), "other"), R"({"arguments": {}})");
}

TEST(V4Parser, ABrokenCallIsContentWithAllThatFollows) {
  const std::string good = invoke("now", "");
  const std::pair<std::string, std::string> cases[] = {
      {block(invoke("now", "junk")), "malformed_call"},
      {block(invoke("now", parameter("a", "true", "1") + parameter("a", "true", "2"))), "malformed_call"},
      {block(invoke("now", "<|DSML|parameter name=\"a\" string=\"maybe\">")), "malformed_call"},
      {block(invoke("now", "<|DSML|parameter name=\"a\" string=\"true\">Oslo\n<|DSML|parameter name=\"b\"")),
       "malformed_call"},
      {block(invoke("now", "<|DSML|parameter name=\"a\" string=\"true\">Oslo\n")), "malformed_call"},
      {block("junk"), "malformed_call"},
      {"<|DSML|tool_calls>\n<|DSML|invoke name=\"now\">\n<|DSML|parameter name=\"a\" string=\"true\">Os",
       "unterminated_block"},
      {"<|DSML|tool_calls>\n<|DSML|invo", "unterminated_block"},
      {"<|DSML|tool_calls>", "unterminated_block"},
  };
  for (const auto& [text, warning] : cases) {
    const std::string shown = marked(text);
    const ReplyText reply = read("a\n\n" + text + " tail");
    EXPECT_TRUE(reply.calls.empty()) << text;
    EXPECT_EQ(reply.content, "a\n\n" + shown + " tail") << text;
    ASSERT_FALSE(reply.warnings.empty()) << text;
    EXPECT_TRUE(reply.broken);
  }
  const ReplyText reply = read("<|DSML|tool_calls>\n" + good + "junk");
  EXPECT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.content, "\njunk");
}

TEST(V4Parser, ABlockWithoutItsEndKeepsItsCalls) {
  const ReplyText reply = read("<|DSML|tool_calls>\n" + invoke("now", ""));
  EXPECT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.content, "");
  EXPECT_EQ(reply.warnings, (std::vector<std::string>{"unterminated_block"}));
}

TEST(V4Parser, ABlockInsideAFenceIsText) {
  ReplyText reply = read("So:\n```xml\n" + kOslo + "\n```\nDone.");
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_TRUE(reply.content.ends_with("</｜DSML｜tool_calls>\n```\nDone."));
  reply = read("So:\n```xml\nx\n```\n\n" + kOslo);
  EXPECT_EQ(reply.content, "So:\n```xml\nx\n```");
  EXPECT_EQ(reply.calls.size(), 1u);
  reply = read("~~~~\n~~~\n" + kOslo);
  EXPECT_TRUE(reply.calls.empty());
  // A fence that the thinking left open ends with it.
  EXPECT_EQ(read("```\n</think>a\n" + kOslo, kTools, true).calls.size(), 1u);
}

TEST(V4Parser, LenientModeTakesTagsThatLostTheirMarker) {
  ReplyOptions lenient = kTools;
  lenient.lenient = true;
  for (const std::string_view marker : {v4::kDsml, std::string_view("DSML｜"), std::string_view()}) {
    const std::string text = marked(kOslo, marker);
    EXPECT_EQ(read(text).calls.empty(), marker != v4::kDsml);
    const ReplyText reply = read(text, lenient);
    ASSERT_EQ(reply.calls.size(), 1u) << text;
    EXPECT_EQ(reply.calls[0].arguments, kOsloArguments);
  }
}

TEST(V4Parser, UnsplitThinkingIsContentWithItsEnd) {
  ReplyOptions whole = kTools;
  whole.split_reasoning = false;
  const ReplyText reply = read("Hm.</think>a\n\n" + kOslo, whole, true);
  EXPECT_EQ(reply.reasoning, "");
  EXPECT_EQ(reply.content, "Hm.</think>a");
  EXPECT_EQ(reply.calls.size(), 1u);
}

TEST(V4Parser, WhatTheEncoderWritesIsReadBack) {
  Rng rng{9};
  const std::string strings[] = {"", "x", "a\nb", "\"q\"", "é😀", "</think>", "<b>", "\\u0041", "{}", "  "};
  for (int round = 0; round < 300; ++round) {
    std::vector<ToolCall> calls;
    for (std::uint64_t n = 1 + rng.below(3); n > 0; --n) {
      nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
      for (std::uint64_t k = rng.below(4); k > 0; --k) {
        const std::string key = "k" + std::to_string(k);
        const std::string& text = strings[rng.below(std::size(strings))];
        if (rng.below(2) == 0)
          arguments[key] = text;
        else
          arguments[key] = {1, nullptr, text, {{"n", 2.5}}};
      }
      calls.push_back({"", "f" + std::to_string(n), arguments.dump()});
    }
    std::vector<TextPiece> pieces;
    append_v4_calls(calls, pieces);
    std::string text = "Said.";
    for (const TextPiece& piece : pieces) text += piece.text;
    const ReplyText reply = read(text);
    EXPECT_EQ(reply.content, "Said.");
    ASSERT_EQ(reply.calls.size(), calls.size()) << text;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(reply.calls[i].name, calls[i].name);
      EXPECT_EQ(reply.calls[i].arguments, *python_json(calls[i].arguments));
    }
  }
}

// Events of one kind in a row, joined.
std::vector<ReplyEvent> joined(const std::vector<ReplyEvent>& events) {
  using Kind = ReplyEvent::Kind;
  std::vector<ReplyEvent> out;
  for (const ReplyEvent& event : events) {
    const bool text = event.kind == Kind::reasoning || event.kind == Kind::content || event.kind == Kind::arguments;
    if (text && !out.empty() && out.back().kind == event.kind)
      out.back().text += event.text;
    else
      out.push_back(event);
  }
  return out;
}

TEST(V4Parser, WhereTheTextIsCutChangesNothing) {
  Rng rng{11};
  const std::string parts[] = {"<think>",
                               "</think>",
                               "\n",
                               "\n\n",
                               " ",
                               "word",
                               "<",
                               "</",
                               "```",
                               "```\n",
                               "~~~",
                               "<｜DSML｜tool_calls>",
                               "</｜DSML｜tool_calls>",
                               "<｜DSML｜invoke name=\"now\">",
                               "<｜DSML｜invoke name=\"",
                               "get_weather\">",
                               "</｜DSML｜invoke>",
                               "<｜DSML｜parameter name=\"city\" string=\"true\">",
                               "<｜DSML｜parameter name=\"arguments\" string=\"false\">",
                               "</｜DSML｜parameter>",
                               "{\"city\": 1}",
                               "é",
                               "\xf0\x9f",
                               "｜DSML｜",
                               "\"",
                               kOsloArguments};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::uint64_t n = rng.below(16); n > 0; --n) text += parts[rng.below(std::size(parts))];
    ReplyOptions options = kTools;
    options.lenient = rng.below(4) == 0;
    options.one_call = rng.below(4) == 0;
    options.calls_in_reasoning = rng.below(4) != 0;
    options.split_reasoning = rng.below(4) != 0;
    options.trim_leading_newlines = rng.below(4) != 0;
    const bool thinks = rng.below(2) == 0;
    const auto events = [&](std::size_t most) {
      const auto parser = v4_reply_parser(options, thinks);
      std::vector<ReplyEvent> out;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = most <= 1 ? 1 : 1 + rng.below(most);
        parser->push(std::string_view(text).substr(at, size), out);
        at += size;
      }
      parser->finish(out);
      return joined(out);
    };
    const auto whole = events(1 << 20);
    ASSERT_EQ(events(1), whole) << text;
    ASSERT_EQ(events(7), whole) << text;
  }
}

}  // namespace
}  // namespace plumb
