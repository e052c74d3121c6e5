#include "model/v4_chat.h"

#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/sha256.h"
#include "model/v4_rules.h"
#include "model/v4_texts.h"

namespace plumb {
namespace {

using Messages = std::vector<ChatMessage>;

const ChatTool kWeather{
    .name = "get_weather",
    .function = R"({"name": "get_weather", "description": "Weather for a city", "parameters": {"type": "object", )"
                R"("properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}})",
    .properties = {"city", "days"},
    .required = {"city"}};

std::string joined(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

std::string encoded(const Messages& messages, const V4Options& options) {
  const auto pieces = encode_v4(messages, options);
  EXPECT_TRUE(pieces) << pieces.error().message;
  return pieces ? joined(*pieces) : std::string();
}

// With short names for the two control tokens that stand around every prompt.
std::string shown(const Messages& messages, const V4Options& options) {
  std::string text = encoded(messages, options);
  for (const auto& [token, name] : {std::pair{v4::kBos, "<BOS>"}, std::pair{v4::kEos, "<EOS>"}})
    for (std::size_t at = 0; (at = text.find(token)) != text.npos;) text.replace(at, token.size(), name);
  return text;
}

std::string digest(std::string_view text) { return sha256_hex(text).substr(0, 16); }

constexpr V4Options kChat{};
// No effort's text: the examples were made without one.
constexpr V4Options kThinking{.profile = V4Profile::preview, .thinking = true};

ChatMessage assistant(std::string content, std::optional<std::string> reasoning = {},
                      std::vector<ToolCall> calls = {}) {
  return {.role = "assistant",
          .content = std::move(content),
          .reasoning_content = std::move(reasoning),
          .tool_calls = std::move(calls)};
}
ChatMessage result(std::string id, std::string content) {
  return {.role = "tool", .content = std::move(content), .tool_call_id = std::move(id)};
}

TEST(V4Texts, AreTheModelsByteForByte) {
  const auto is = [](std::string_view text, std::size_t bytes, const char* sha256) {
    EXPECT_EQ(text.size(), bytes);
    EXPECT_EQ(sha256_hex(text), sha256);
  };
  is(v4::kEffortTextA, 476, "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7");
  is(v4::kEffortTextB, 528, "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c");
  is(v4::kToolsHead, 890, "c7c9042638154a237b5d1bd48be772374a35a4d24c5cacfd1ffbd92703da329c");
  is(v4::kToolsFoot, 99, "690702850fe256512cb1ee67c4e436ecb3e735c71ebee77ca45ff357a75fb5a7");
  is(v4::kResponseFormat, 80, "5200f58413f49f3957c43beddbc97bead023232cb5934fad0c1997c30c139112");
}

TEST(V4Chat, SystemAndUser) {
  const Messages messages{{"system", "You are Plumb."}, {"user", "Say hi"}};
  EXPECT_EQ(shown(messages, kChat), "<BOS>You are Plumb.<｜User｜>Say hi<｜Assistant｜></think>");
  EXPECT_EQ(digest(encoded(messages, kChat)), "6883e1d693b82819");
  EXPECT_EQ(digest(encoded(messages, kThinking)), "e36d69287a5ff8bb");
}

TEST(V4Chat, ThinkingOfEarlierTurnsIsDroppedWithoutTools) {
  const Messages messages{{"user", "My code is 7431."}, assistant("Noted.", "Remember it."), {"user", "Repeat it"}};
  EXPECT_EQ(
      shown(messages, kThinking),
      "<BOS><｜User｜>My code is 7431.<｜Assistant｜></think>Noted.<EOS><｜User｜>Repeat it<｜Assistant｜><think>");
  EXPECT_EQ(
      shown(messages, kChat),
      "<BOS><｜User｜>My code is 7431.<｜Assistant｜></think>Noted.<EOS><｜User｜>Repeat it<｜Assistant｜></think>");
  V4Options keeps = kThinking;
  keeps.drop_thinking = false;
  EXPECT_EQ(shown(messages, keeps),
            "<BOS><｜User｜>My code is 7431.<｜Assistant｜><think>Remember it.</think>Noted.<EOS><｜User｜>Repeat "
            "it<｜Assistant｜><think>");
}

Messages two_cities() {
  ChatMessage system{.role = "system", .content = "S"};
  system.tools = {kWeather};
  return {system,
          {"user", "Oslo and Bergen?"},
          assistant("Checking.", "Two calls.",
                    {{"c1", "get_weather", R"({"city": "Oslo", "days": 2})"},
                     {"c2", "get_weather", R"({"city": "Bergen"})"}}),
          result("c2", "rain"),
          result("c1", "sun")};
}

TEST(V4Chat, ToolsKeepThinkingAndResultsTakeTheOrderOfTheirCalls) {
  const std::string text = shown(two_cities(), kThinking);
  EXPECT_TRUE(text.starts_with("<BOS>S\n\n## Tools\n\n"));
  EXPECT_TRUE(text.ends_with(
      "<｜User｜>Oslo and Bergen?<｜Assistant｜><think>Two calls.</think>Checking.\n\n<｜DSML｜tool_calls>\n"
      "<｜DSML｜invoke name=\"get_weather\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n"
      "<｜DSML｜invoke name=\"get_weather\">\n"
      "<｜DSML｜parameter name=\"city\" string=\"true\">Bergen</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n"
      "</｜DSML｜tool_calls><EOS><｜User｜><tool_result>sun</tool_result>\n\n<tool_result>rain</tool_result>"
      "<｜Assistant｜><think>"));
  EXPECT_EQ(digest(encoded(two_cities(), kThinking)), "4577565e99226961");
}

TEST(V4Chat, WithToolsALongerConversationExtendsTheShorterPrompt) {
  Messages messages = two_cities();
  const std::string before = encoded(messages, kThinking);
  messages.push_back(assistant("Oslo sun, Bergen rain.", "Sum up."));
  messages.push_back({"user", "Thanks, which was wet?"});
  const std::string after = encoded(messages, kThinking);
  EXPECT_TRUE(after.starts_with(before));
  EXPECT_EQ(digest(after), "d814843d168a4869");
}

TEST(V4Chat, AnEmptySystemTextMayDeclareTools) {
  ChatMessage system{.role = "system", .content = ""};
  system.tools = {kWeather};
  const Messages messages{system, {"user", "x"}};
  EXPECT_TRUE(shown(messages, kThinking).starts_with("<BOS>\n\n## Tools"));
  EXPECT_EQ(digest(encoded(messages, kThinking)), "a3f983a7a700d54e");
}

TEST(V4Chat, TheReferenceLosesADeveloperMessageWhenItThinks) {
  const Messages messages{{"developer", "Be terse."}, {"user", "A"}};
  EXPECT_EQ(shown(messages, kThinking), "<BOS><｜User｜>A<｜Assistant｜><think>");
  EXPECT_EQ(shown(messages, kChat), "<BOS><｜User｜>Be terse.<｜User｜>A<｜Assistant｜></think>");
}

TEST(V4Chat, LatestReminderStandsBeforeItsQuestion) {
  const Messages messages{{"system", "S"}, {"latest_reminder", "2026-11-29, Oslo"}, {"user", "Hi"}};
  EXPECT_EQ(shown(messages, kThinking),
            "<BOS>S<｜latest_reminder｜>2026-11-29, Oslo<｜User｜>Hi<｜Assistant｜><think>");
}

TEST(V4Chat, TasksAskForOneToken) {
  ChatMessage title{.role = "user", .content = "Name this chat"};
  title.task = "title";
  EXPECT_EQ(shown({{"user", "Hi"}, assistant("Hello."), title}, kChat),
            "<BOS><｜User｜>Hi<｜Assistant｜></think>Hello.<EOS><｜User｜>Name this chat<｜title｜>");
  ChatMessage action{.role = "user", .content = "Weather?"};
  action.task = "action";
  EXPECT_EQ(shown({action}, kChat), "<BOS><｜User｜>Weather?<｜Assistant｜></think><｜action｜>");
  V4Options of_request = kChat;
  of_request.task = "action";
  EXPECT_EQ(shown({{"user", "Weather?"}}, of_request), "<BOS><｜User｜>Weather?<｜Assistant｜></think><｜action｜>");
  // The answer to a task has no thinking part.
  action.task = "query";
  EXPECT_EQ(shown({action, assistant("q", "r"), {"user", "x"}}, kThinking),
            "<BOS><｜User｜>Weather?<｜query｜>q<EOS><｜User｜>x<｜Assistant｜><think>");
}

TEST(V4Chat, APrefixIsContinued) {
  ChatMessage prefix = assistant("1, 2,");
  EXPECT_EQ(shown({{"user", "Count"}, prefix}, kChat), "<BOS><｜User｜>Count<｜Assistant｜></think>1, 2,<EOS>");
  prefix.without_eos = true;
  EXPECT_EQ(shown({{"user", "Count"}, prefix}, kChat), "<BOS><｜User｜>Count<｜Assistant｜></think>1, 2,");
  EXPECT_EQ(shown({{"user", "Count"}, prefix}, kThinking), "<BOS><｜User｜>Count<｜Assistant｜><think></think>1, 2,");
  V4Options options = kThinking;
  options.continuation = Continuation::content;
  EXPECT_EQ(shown({{"user", "Count"}, assistant("1, 2,", "r")}, options),
            "<BOS><｜User｜>Count<｜Assistant｜><think>r</think>1, 2,");
  options.continuation = Continuation::reasoning;
  EXPECT_EQ(shown({{"user", "Count"}, assistant("", "First")}, options),
            "<BOS><｜User｜>Count<｜Assistant｜><think>First");
}

TEST(V4Chat, UserMessagesInARowAreOneTurn) {
  EXPECT_EQ(shown({{"user", "A"}, {"user", "B"}}, kChat), "<BOS><｜User｜>A\n\nB<｜Assistant｜></think>");
}

TEST(V4Chat, ACallWithoutArgumentsHasAnEmptyLine) {
  const Messages messages{{"user", "t"}, assistant("", {}, {{"c", "now", "{}"}})};
  EXPECT_EQ(shown(messages, kChat),
            "<BOS><｜User｜>t<｜Assistant｜></think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n\n"
            "</｜DSML｜invoke>\n</｜DSML｜tool_calls><EOS>");
  EXPECT_EQ(digest(encoded(messages, kChat)), "c612bd5e73c7b1bd");
}

TEST(V4Chat, ArgumentsArePrintedAsPythonPrintsThem) {
  const Messages messages{
      {"user", "go"},
      assistant("", {}, {{"c", "f", R"({"a": [1, 2.50], "b": null, "c": "x\ny", "d": {"k": "é"}})"}}),
      result("c", "ok"),
      {"user", "and?"}};
  const std::string text = shown(messages, kChat);
  EXPECT_NE(text.find("name=\"a\" string=\"false\">[1, 2.5]<"), text.npos);
  EXPECT_NE(text.find("name=\"b\" string=\"false\">null<"), text.npos);
  EXPECT_NE(text.find("name=\"c\" string=\"true\">x\ny<"), text.npos);
  EXPECT_NE(text.find("name=\"d\" string=\"false\">{\"k\": \"é\"}<"), text.npos);
  EXPECT_TRUE(text.ends_with("<EOS><｜User｜><tool_result>ok</tool_result>\n\nand?<｜Assistant｜></think>"));
  EXPECT_EQ(digest(encoded(messages, kChat)), "5e36eb3e18e74140");
}

TEST(V4Chat, ArgumentsThatAreNoObjectBecomeOneParameter) {
  for (const char* arguments : {"not json", "[1]", "\"x\"", ""})
    EXPECT_NE(shown({{"user", "t"}, assistant("", {}, {{"c", "now", arguments}})}, kChat)
                  .find(fmt::format("<｜DSML｜parameter name=\"arguments\" string=\"true\">{}</｜DSML｜parameter>",
                                    arguments)),
              std::string::npos);
}

TEST(V4Chat, WithoutDeclaredToolsThinkingBeforeAResultIsDropped) {
  const Messages messages{{"user", "go"}, assistant("", "R1", {{"c", "f", "{}"}}), result("c", "ok")};
  EXPECT_EQ(digest(encoded(messages, kThinking)), "d8ded019e9cfd0ca");
}

TEST(V4Chat, TwoAssistantMessagesInARowHaveOneHeader) {
  EXPECT_EQ(shown({{"user", "u"}, assistant("a1", "r1"), assistant("a2", "r2")}, kThinking),
            "<BOS><｜User｜>u<｜Assistant｜><think>r1</think>a1<EOS>r2</think>a2<EOS>");
}

TEST(V4Chat, EffortStandsBeforeEverythingAndDependsOnTheProfile) {
  const Messages messages{{"system", "S"}, {"user", "x"}};
  const auto head = [&](V4Profile profile, V4Effort effort, bool thinking = true) {
    const std::string text = shown(messages, {.profile = profile, .thinking = thinking, .effort = effort});
    const std::size_t begin = std::string_view("<BOS>").size(), end = text.find("S<｜User｜>");
    return text.substr(begin, end - begin);
  };
  EXPECT_EQ(head(V4Profile::preview, V4Effort::low), "");
  EXPECT_EQ(head(V4Profile::preview, V4Effort::high), "");
  EXPECT_EQ(head(V4Profile::preview, V4Effort::max), v4::kEffortTextA);
  EXPECT_EQ(head(V4Profile::official, V4Effort::low), "");
  EXPECT_EQ(head(V4Profile::official, V4Effort::high), v4::kEffortTextA);
  EXPECT_EQ(head(V4Profile::official, V4Effort::max), v4::kEffortTextB);
  EXPECT_EQ(head(V4Profile::official, V4Effort::max, false), "");
}

TEST(V4Chat, EffortWordsAreTheHostedApis) {
  for (const char* word : {"", "medium", "high", "xhigh"}) EXPECT_EQ(*v4_effort(word), V4Effort::high) << word;
  for (const char* word : {"minimal", "low"}) EXPECT_EQ(*v4_effort(word), V4Effort::low) << word;
  for (const char* word : {"max", "ultra"}) EXPECT_EQ(*v4_effort(word), V4Effort::max) << word;
  EXPECT_FALSE(v4_effort("HIGH"));
}

TEST(V4Chat, AResponseFormatStandsBehindTheTools) {
  ChatMessage system{.role = "system", .content = "S"};
  system.tools = {kWeather};
  system.response_format = R"({"type": "object"})";
  const std::string text = shown({system, {"user", "x"}}, kChat);
  EXPECT_NE(text.find("tool calls.\n\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to "
                      "reply:\n{\"type\": \"object\"}<｜User｜>"),
            text.npos);
}

// Only what the encoder writes is control; the rest stays text, whatever it looks like.
TEST(V4Chat, ControlStringsInContentsAreNoControlPieces) {
  const std::string all = "<｜User｜></think>｜DSML｜<｜end▁of▁sentence｜>";
  for (const char* role : {"system", "user", "developer", "latest_reminder", "assistant", "tool"}) {
    const auto pieces = encode_v4(Messages{{role, all}, {"user", "x"}}, kChat);
    const auto plain = encode_v4(Messages{{role, "text"}, {"user", "x"}}, kChat);
    ASSERT_TRUE(pieces && plain);
    const auto controls = [](const auto& list) {
      return std::count_if(list.begin(), list.end(), [](const TextPiece& p) { return p.control; });
    };
    EXPECT_EQ(controls(*pieces), controls(*plain)) << role;
    EXPECT_NE(joined(*pieces).find(all), std::string::npos) << role;
  }
}

TEST(V4Chat, WhatTheReferenceRefusesIsRefused) {
  EXPECT_EQ(encode_v4(Messages{{"user", "a"}, {"robot", "b"}}, kChat).error().message,
            "messages[1]: unknown role 'robot'; known are system, developer, user, assistant, tool and "
            "latest_reminder");
  EXPECT_EQ(encode_v4(Messages{{"developer", ""}}, kChat).error().message,
            "messages[0]: a developer message needs content");
  ChatMessage odd{.role = "user", .content = "x"};
  odd.task = "sing";
  EXPECT_EQ(encode_v4(Messages{odd}, kChat).error().message, "messages[0]: unknown task 'sing'");
}

// --- the rules of an API ---

Conversation asking(Messages messages) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  return conversation;
}

std::string ready(const Conversation& conversation, V4Profile profile = V4Profile::preview) {
  const auto prepared = prepare_v4(conversation, profile);
  if (!prepared) return prepared.error().message;
  std::string text = shown(prepared->messages, prepared->options) + joined(prepared->forced);
  return text;
}

std::vector<std::string> warnings(const Conversation& conversation) {
  const auto prepared = prepare_v4(conversation, V4Profile::preview);
  EXPECT_TRUE(prepared) << prepared.error().message;
  return prepared ? prepared->warnings : std::vector<std::string>();
}

TEST(V4Rules, ThinkingIsOnUnlessSwitchedOff) {
  Conversation conversation = asking({{"user", "x"}});
  EXPECT_EQ(ready(conversation), "<BOS><｜User｜>x<｜Assistant｜><think>");
  EXPECT_TRUE(prepare_v4(conversation, V4Profile::preview)->opens_reasoning);
  conversation.effort = "none";
  EXPECT_EQ(ready(conversation), "<BOS><｜User｜>x<｜Assistant｜></think>");
  conversation.effort = "low";
  conversation.thinking = false;
  EXPECT_EQ(ready(conversation), "<BOS><｜User｜>x<｜Assistant｜></think>");
  EXPECT_FALSE(prepare_v4(conversation, V4Profile::preview)->opens_reasoning);
  conversation.effort = "huge";
  EXPECT_TRUE(ready(conversation).starts_with("reasoning effort 'huge' is unknown"));
}

TEST(V4Rules, LeadingDeveloperMessagesAreSystemText) {
  const std::string all = "<BOS>A\n\nB<｜User｜>x<｜Assistant｜><think>";
  EXPECT_EQ(ready(asking({{"developer", "A"}, {"system", "B"}, {"user", "x"}})), all);
  EXPECT_EQ(ready(asking({{"system", "A"}, {"developer", "B"}, {"user", "x"}})), all);
  EXPECT_EQ(ready(asking({{"developer", "A\n\nB"}, {"user", "x"}})), all);
  EXPECT_EQ(ready(asking({{"developer", "A"}})), "<BOS><｜User｜>A<｜Assistant｜><think>");
  EXPECT_EQ(ready(asking({{"system", "A"}, {"developer", "B"}})), "<BOS>A<｜User｜>B<｜Assistant｜><think>");
  Conversation reference = asking({{"developer", "A"}, {"user", "x"}});
  reference.developer_is_system = false;
  EXPECT_EQ(ready(reference), "<BOS><｜User｜>x<｜Assistant｜><think>");
  EXPECT_EQ(warnings(reference), std::vector<std::string>{"developer_message_dropped"});
}

TEST(V4Rules, ToolsOfTheRequestJoinTheSystemMessage) {
  Conversation conversation = asking({{"user", "x"}});
  conversation.tools = {kWeather};
  EXPECT_TRUE(ready(conversation).starts_with("<BOS>\n\n## Tools"));
  conversation.messages.insert(conversation.messages.begin(), {"system", "S"});
  EXPECT_TRUE(ready(conversation).starts_with("<BOS>S\n\n## Tools"));
}

TEST(V4Rules, ToolChoiceNoneDeclaresNothingAndKeepsTheThinking) {
  Conversation conversation = asking({{"user", "x"}, assistant("a", "r"), {"user", "y"}});
  conversation.tools = {kWeather};
  conversation.tool_choice = ToolChoice::none;
  EXPECT_EQ(ready(conversation),
            "<BOS><｜User｜>x<｜Assistant｜><think>r</think>a<EOS><｜User｜>y<｜Assistant｜><think>");
}

TEST(V4Rules, AForcedCallBeginsInThePrompt) {
  Conversation conversation = asking({{"user", "x"}});
  conversation.tools = {kWeather};
  conversation.tool_choice = ToolChoice::required;
  EXPECT_TRUE(ready(conversation).starts_with("tool_choice \"required\"")) << ready(conversation);
  conversation.thinking = false;
  EXPECT_TRUE(ready(conversation).ends_with("</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\""));
  conversation.tool_choice = ToolChoice::named;
  conversation.tool_name = "get_weather";
  EXPECT_TRUE(ready(conversation).ends_with("<｜DSML｜invoke name=\"get_weather\">\n"));
}

TEST(V4Rules, AConversationEndsWithAQuestionOrIsContinued) {
  EXPECT_TRUE(ready(asking({{"user", "x"}, assistant("a")})).starts_with("the last message is an assistant's"));
  EXPECT_EQ(ready(asking({{"user", "x"}, {"system", "s"}})),
            "the last message is of role system: there is nothing to answer");
  Conversation conversation = asking({{"user", "Count"}, assistant("1, 2,")});
  conversation.continuation = Continuation::content;
  EXPECT_EQ(ready(conversation), "<BOS><｜User｜>Count<｜Assistant｜><think></think>1, 2,");
  EXPECT_FALSE(prepare_v4(conversation, V4Profile::preview)->opens_reasoning);
  conversation.continuation = Continuation::reasoning;
  EXPECT_TRUE(ready(conversation).starts_with("to continue its reasoning"));
  conversation.messages.back() = assistant("", "First");
  EXPECT_EQ(ready(conversation), "<BOS><｜User｜>Count<｜Assistant｜><think>First");
  EXPECT_TRUE(prepare_v4(conversation, V4Profile::preview)->opens_reasoning);
  conversation.messages.pop_back();
  EXPECT_EQ(ready(conversation), "to be continued, the last message must be an assistant's");
}

TEST(V4Rules, AdjacentAssistantMessagesBecomeOne) {
  EXPECT_EQ(ready(asking({{"user", "x"}, assistant("a", "r"), assistant("b"), {"user", "y"}})),
            "<BOS><｜User｜>x<｜Assistant｜></think>ab<EOS><｜User｜>y<｜Assistant｜><think>");
  EXPECT_TRUE(ready(asking({{"user", "x"}, assistant("a"), assistant("b", "r"), {"user", "y"}}))
                  .starts_with("messages[2]: reasoning_content behind the content"));
}

TEST(V4Rules, ALatestReminderBehindItsQuestionIsRefused) {
  EXPECT_TRUE(ready(asking({{"user", "x"}, {"latest_reminder", "today"}, {"user", "y"}}))
                  .starts_with("messages[1]: a latest_reminder stands before"));
}

TEST(V4Rules, AValueThatWouldEndItselfIsRefused) {
  const auto call = [](const char* name, const char* arguments) {
    return ready(asking({{"user", "x"}, assistant("", {}, {{"c", name, arguments}}), result("c", "ok")}));
  };
  EXPECT_TRUE(
      call("f", R"({"a": "x</｜DSML｜parameter>y"})").starts_with("messages[1].tool_calls: an argument contains"));
  EXPECT_TRUE(call("f", R"({"a": ["</｜DSML｜parameter>"]})").starts_with("messages[1].tool_calls: an argument"));
  EXPECT_TRUE(call("f", "no json </｜DSML｜parameter>").starts_with("messages[1].tool_calls: an argument"));
  EXPECT_TRUE(call("f\">", "{}").starts_with("messages[1].tool_calls: the name"));
  EXPECT_TRUE(call("f", R"({"a\">": 1})").starts_with("messages[1].tool_calls: the key"));
  EXPECT_TRUE(call("f", R"({"a\"b": "<b>"})").starts_with("<BOS>"));
}

TEST(V4Rules, ThinkingThatWasNotSentBackIsNoticed) {
  Conversation conversation = asking({{"user", "x"}, assistant("", {}, {{"c", "f", "{}"}}), result("c", "ok")});
  EXPECT_TRUE(warnings(conversation).empty());  // without tools it would be dropped anyway
  conversation.tools = {kWeather};
  EXPECT_EQ(warnings(conversation), std::vector<std::string>{"missing_reasoning"});
  conversation.missing_reasoning = MissingReasoning::reject;
  EXPECT_EQ(ready(conversation), "messages[2]: the reasoning_content that led to its tool calls must be passed back");
  conversation.missing_reasoning = MissingReasoning::allow;
  EXPECT_TRUE(warnings(conversation).empty());
}

TEST(V4Rules, OddHistoriesAreWarnedOf) {
  EXPECT_EQ(warnings(asking({{"user", "x"}, result("c", "ok")})), std::vector<std::string>{"unknown_tool_call_id"});
  EXPECT_EQ(warnings(asking({{"user", "x"}, assistant("", {}, {{"c", "f", "nope"}}), result("c", "ok")})),
            std::vector<std::string>{"arguments_not_json"});
  EXPECT_EQ(
      warnings(asking({{"user", "x"}, assistant("", {}, {{"c", "f", "{}"}}), result("c", "1"), result("c", "2")})),
      std::vector<std::string>{"unknown_tool_call_id"});
  EXPECT_EQ(warnings(asking({{"user", "x"}, assistant("", {}, {{"c", "f", "{}"}}), {"user", "y"}})),
            std::vector<std::string>{"missing_tool_result"});
}

TEST(V4Profiles, AreDetectedByTheCheckpoint) {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("plumb_v4_profile_test" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "encoding");
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  const std::string plain = R"({"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4"})";
  write("config.json", plain);
  EXPECT_EQ(detect_v4_profile(folder), V4Profile::preview);
  write("config.json", R"({"architectures": ["DeepseekV4ForCausalLM"], "dspark_layers": 3})");
  EXPECT_EQ(detect_v4_profile(folder), V4Profile::official);
  write("encoding/encoding_dsv4.py", "REASONING_EFFORT_MAX = '''x'''\n");
  EXPECT_EQ(detect_v4_profile(folder), V4Profile::preview);
  write("encoding/encoding_dsv4.py", "DEFAULT_REASONING_EFFORT = 'low'\nREASONING_EFFORT_PROMPTS = {'low': ''}\n");
  write("config.json", plain);
  EXPECT_EQ(detect_v4_profile(folder), V4Profile::official);
  write("config.json", R"({"architectures": ["DeepseekV41ForCausalLM"]})");
  EXPECT_NE(detect_v4_profile(folder).error().message.find("this is DeepSeek-V4.1"), std::string::npos);
  write("config.json", "[");
  EXPECT_FALSE(detect_v4_profile(folder));
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(detect_v4_profile(folder));
}

}  // namespace
}  // namespace plumb
