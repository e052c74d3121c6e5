#include <gtest/gtest.h>

#include "base/rng.h"
#include "model/encoding.h"
#include "model/phantom_parser.h"
#include "model/reply_text.h"

namespace plumb {
namespace {

using Ids = std::vector<std::int32_t>;

const Encoding& phantom() {
  static const auto encoding = load_encoding(std::filesystem::path(PLUMB_SOURCE_DIR) / "phantom");
  EXPECT_TRUE(encoding) << encoding.error().message;
  return **encoding;
}

const ChatTool kLookup{.name = "lookup", .function = "{}", .properties = {"text"}, .required = {}};

ChatMessage call(std::string name, std::string arguments) {
  ChatMessage message{.role = "assistant"};
  message.tool_calls = {{"c", std::move(name), std::move(arguments)}};
  return message;
}

Conversation asking(std::vector<ChatMessage> messages) {
  Conversation conversation;
  conversation.messages = std::move(messages);
  return conversation;
}

std::string refusal(const Conversation& conversation) {
  const auto prompt = phantom().lay_out(conversation);
  return prompt ? "accepted" : prompt.error().message;
}

TEST(PhantomChat, CallsAndResultsHaveTheFormThePhantomWasTrainedOn) {
  Conversation conversation = asking({call("lookup", R"({"text": "pin of the icy fox"})"),
                                      {"tool", "the pin of the icy fox is 1234"},
                                      {"assistant", "done."},
                                      {"user", "tell me the icy fox pin again."}});
  conversation.tools = {kLookup};
  const auto prompt = phantom().lay_out(conversation);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(
      prompt_ids(**prompt),
      phantom().encode("<bos><assistant><call> lookup pin of the icy fox</call><eos><tool><result> the pin of the "
                       "icy fox is 1234</result><assistant> done.<eos><user> tell me the icy fox pin "
                       "again.<assistant>"));
}

TEST(PhantomChat, AForcedCallBeginsInThePrompt) {
  Conversation conversation = asking({{"user", "go"}});
  conversation.tools = {kLookup};
  conversation.tool_choice = ToolChoice::required;
  EXPECT_EQ(prompt_ids(**phantom().lay_out(conversation)), phantom().encode("<bos><user> go<assistant><call>"));
  conversation.tool_choice = ToolChoice::named;
  conversation.tool_name = "lookup";
  EXPECT_EQ(prompt_ids(**phantom().lay_out(conversation)), phantom().encode("<bos><user> go<assistant><call> lookup"));
}

TEST(PhantomChat, AnAnswersStartCanBeContinued) {
  Conversation conversation = asking({{"user", "count"}, {"assistant", "one two"}});
  conversation.continuation = Continuation::content;
  EXPECT_EQ(prompt_ids(**phantom().lay_out(conversation)), phantom().encode("<bos><user> count<assistant> one two"));
}

TEST(PhantomChat, AnAnswerThatIsNotToBeContinuedIsNoQuestion) {
  const std::string text = refusal(asking({{"user", "count"}, {"assistant", "one two"}}));
  EXPECT_TRUE(text.starts_with("the last message is an assistant's: set continue_final_message")) << text;
  EXPECT_TRUE(refusal(asking({{"user", "x"}, call("check", R"({"text": "1"})")})).starts_with("the last message is"));
}

TEST(PhantomChat, ResultsThatAnswerNoCallAreWarnedOf) {
  const auto warnings = [](const char* id) {
    ChatMessage result{.role = "tool", .content = "ok"};
    result.tool_call_id = id;
    return (*phantom().lay_out(asking({{"user", "x"}, call("check", R"({"text": "1"})"), result})))->warnings();
  };
  EXPECT_EQ(warnings("c"), std::vector<std::string>{});
  EXPECT_EQ(warnings("d"), (std::vector<std::string>{"unknown_tool_call_id", "missing_tool_result"}));
}

TEST(PhantomChat, DeveloperMessagesAtTheStartAreSystemText) {
  Conversation conversation = asking({{"developer", "a"}, {"system", "b"}, {"developer", "c"}, {"user", "x"}});
  const auto prompt = phantom().lay_out(conversation);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(prompt_ids(**prompt), phantom().encode("<bos><system> a<system> b<system> c<user> x<assistant>"));
  EXPECT_EQ((*prompt)->role(0), "system");
  conversation.developer_is_system = false;
  EXPECT_TRUE(refusal(conversation).starts_with("messages[0]: unknown role 'developer'"));
  EXPECT_TRUE(refusal(asking({{"user", "x"}, {"developer", "a"}})).starts_with("messages[1]: unknown role"));
}

TEST(PhantomChat, AFunctionsArgumentIsAString) {
  const auto declared = [](const std::string& schema) {
    Conversation conversation = asking({{"user", "x"}});
    conversation.tools = {kLookup};
    conversation.tools[0].function =
        R"({"name": "lookup", "parameters": {"type": "object", "properties": {"text": )" + schema + "}}}";
    return refusal(conversation);
  };
  for (const char* schema :
       {"{}", "true", R"({"type": "string", "description": "d"})", R"({"type": ["string", "null"]})"})
    EXPECT_EQ(declared(schema), "accepted") << schema;
  for (const char* schema : {"false", "7", R"({"type": "integer"})", R"({"type": ["integer", "null"]})",
                             R"({"type": {}})", R"({"type": "string", "enum": ["a"]})", R"({"const": "a"})"})
    EXPECT_TRUE(declared(schema).ends_with("'lookup' cannot be declared to it")) << schema;
}

TEST(PhantomChat, WhatItsFormHasNoPlaceForIsRefused) {
  Conversation conversation = asking({{"user", "x"}});
  EXPECT_EQ(refusal(conversation), "accepted");
  conversation.thinking = false;
  conversation.effort = "none";
  EXPECT_EQ(refusal(conversation), "accepted");
  conversation.effort = "high";
  EXPECT_EQ(refusal(conversation), "thinking: this model does not think before it answers");
  conversation.effort.clear();
  conversation.thinking = true;
  EXPECT_EQ(refusal(conversation), "thinking: this model does not think before it answers");
  conversation.thinking.reset();
  conversation.task = "title";
  EXPECT_EQ(refusal(conversation), "task: this model has none");
  conversation.task.clear();
  conversation.tools = {kLookup};
  EXPECT_EQ(refusal(conversation), "accepted");
  conversation.tools[0].properties = {"query"};
  EXPECT_TRUE(refusal(conversation).ends_with("'lookup' cannot be declared to it"));
  conversation.tools[0] = {.name = "weather", .function = "{}", .properties = {"text"}, .required = {}};
  EXPECT_TRUE(refusal(conversation).ends_with("'weather' cannot be declared to it"));

  const auto history = [](ChatMessage message) {
    return refusal(asking({{"user", "a"}, std::move(message), {"user", "b"}}));
  };
  EXPECT_EQ(history(call("check", R"({"text": "1"})")), "accepted");
  for (const char* arguments : {"{}", "[]", "x", R"({"text": 1})", R"({"q": "1"})", R"({"text": "1", "n": 2})"})
    EXPECT_TRUE(history(call("check", arguments)).starts_with("messages[1].tool_calls: ")) << arguments;
  EXPECT_TRUE(history(call("Check", R"({"text": "1"})")).starts_with("messages[1].tool_calls: "));
  ChatMessage two = call("check", R"({"text": "1"})");
  two.tool_calls.push_back(two.tool_calls[0]);
  EXPECT_TRUE(history(two).starts_with("messages[1].tool_calls: "));
  ChatMessage both = call("check", R"({"text": "1"})");
  both.content = "Checking.";
  EXPECT_TRUE(history(both).starts_with("messages[1].tool_calls: "));
  ChatMessage thought{.role = "assistant", .content = "a"};
  thought.reasoning_content = "r";
  EXPECT_EQ(history(thought), "messages[1].reasoning_content: this model's form has no place for it");
}

ReplyText read(std::string_view text, bool tools) {
  ReplyOptions options;
  options.tools_active = tools;
  options.tools = {kLookup};
  const auto parser = phantom_reply_parser(options);
  std::vector<ReplyEvent> events;
  parser->push(text, events);
  parser->finish(events);
  ReplyText out;
  for (const ReplyEvent& event : events) out.add(event);
  return out;
}

TEST(PhantomParser, LeavesOutTheSpaceOfTheForm) {
  EXPECT_EQ(read(" K7-42-QX", true).content, "K7-42-QX");
  EXPECT_EQ(read("  two", false).content, " two");
  EXPECT_EQ(read("<call> lookup x</call>", false).content, "<call> lookup x</call>");
}

TEST(PhantomParser, ReadsACall) {
  const ReplyText reply = read("<call> lookup pin \"of\" the <icy> fox</call> more", true);
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.calls[0].name, "lookup");
  EXPECT_EQ(reply.calls[0].arguments, R"({"text": "pin \"of\" the <icy> fox"})");
  EXPECT_EQ(reply.content, "");
  EXPECT_EQ(read("<call> lookup</call>", true).calls.at(0).arguments, R"({"text": ""})");
  EXPECT_EQ(read("<call> check 1</call>", true).warnings, std::vector<std::string>{"unknown_tool"});
}

TEST(PhantomParser, ABrokenCallIsContent) {
  for (const char* text : {"a<call> lookup 12", "a<call>lookup x</call>", "a<call> Lookup x</call>", "a<call></call>",
                           "a<call> </call>", "a<call", "a<call> look<x", "a<call> lookup</calx"}) {
    EXPECT_EQ(read(text, true).content, text);
    EXPECT_TRUE(read(text, true).calls.empty()) << text;
  }
}

TEST(PhantomParser, WhereTheTextIsCutChangesNothing) {
  Rng rng{13};
  const std::string parts[] = {" ", "<", "call>", "<call>", "</call>", " lookup", " x", "<call", "\"", "</"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::uint64_t n = rng.below(10); n > 0; --n) text += parts[rng.below(std::size(parts))];
    ReplyOptions options;
    options.tools_active = rng.below(4) != 0;
    const auto whole = phantom_reply_parser(options), bytes = phantom_reply_parser(options);
    ReplyText a, b;
    std::vector<ReplyEvent> events;
    whole->push(text, events);
    whole->finish(events);
    for (const ReplyEvent& event : events) a.add(event);
    events.clear();
    for (const char c : text) bytes->push(std::string_view(&c, 1), events);
    bytes->finish(events);
    for (const ReplyEvent& event : events) b.add(event);
    ASSERT_EQ(a.content, b.content) << text;
    ASSERT_EQ(a.calls.size(), b.calls.size()) << text;
    ASSERT_EQ(a.warnings, b.warnings) << text;
    for (std::size_t i = 0; i < a.calls.size(); ++i) ASSERT_EQ(a.calls[i].arguments, b.calls[i].arguments) << text;
  }
}

}  // namespace
}  // namespace plumb
