#include "investigator/operator_conversation.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "investigator/grade.h"
#include "investigator/trial.h"
#include "investigator/world.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

Json agent_transcript() {
  const std::string text =
      "We run the ferry from the north quay every morning. Please keep in mind that the tide tables changed in spring "
      "and that the crew of the second boat is new. The harbour office wants a list by noon.";
  Json j = Json::parse(R"({"model": "m", "temperature": 0.7, "messages": [
      {"role": "system", "content": "You help a ferry company."},
      {"role": "user"},
      {"role": "assistant", "content": null, "tool_calls": [
          {"id": "c1", "type": "function", "function": {"name": "list", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c1"},
      {"role": "assistant", "content": "Here is the list."},
      {"role": "user", "content": [{"type": "text", "text": "And what did I say "}, {"type": "text", "text": "at first?"}]},
      {"role": "assistant", "content": "This seems to be your first message."}],
    "tools": [{"type": "function", "function": {"name": "list"}}]})");
  j["messages"][1]["content"] = text;
  j["messages"][3]["content"] = text + " \xc3\xa9t\xc3\xa9 " + text;
  return j;
}

std::shared_ptr<const OperatorConversation> parsed(const Json& j) {
  auto c = OperatorConversation::parse(j.dump(), "talk.json");
  EXPECT_TRUE(c) << (c ? "" : c.error().message);
  return *c;
}

TEST(OperatorConversation, IsReplayedVerbatimWithoutItsLastAnswer) {
  const Json j = agent_transcript();
  const auto c = parsed(j);
  EXPECT_EQ(c->message_count(), 6u);
  const Ask verbatim = c->asks({kConversationCell, 1})[0];
  const Json body = Json::parse(request_body(verbatim, "m", {}, ""));
  ASSERT_EQ(body["messages"].size(), 6u);
  EXPECT_EQ(body["messages"][2]["tool_calls"], j["messages"][2]["tool_calls"]);
  EXPECT_EQ(body["messages"][3]["tool_call_id"], "c1");
  EXPECT_EQ(body["messages"][3]["content"], j["messages"][3]["content"]);
  EXPECT_EQ(body["messages"][5]["content"], "And what did I say at first?");
  EXPECT_EQ(body["tools"], j["tools"]);
  EXPECT_EQ(body["temperature"], 0);  // the deployment's, not the file's
  EXPECT_EQ(body["max_tokens"], kVerbatimTokens);
  EXPECT_TRUE(verbatim.expected.empty());
}

TEST(OperatorConversation, ThePlantedSkeletonHasTheSameRolesToolsAndLengths) {
  const auto c = parsed(agent_transcript());
  std::set<int> turns;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto asks = c->asks({kConversationCell, seed});
    const Ask &verbatim = asks[0], &planted = asks[1];
    ASSERT_EQ(planted.messages.size(), verbatim.messages.size());
    EXPECT_EQ(planted.body, verbatim.body);
    int stated = 0;
    for (std::size_t i = 0; i < planted.messages.size(); ++i) {
      EXPECT_EQ(planted.messages[i].role, verbatim.messages[i].role);
      EXPECT_EQ(planted.messages[i].more, verbatim.messages[i].more);
      const std::string& text = planted.messages[i].content;
      const bool here = text.find(planted.expected) != std::string::npos;
      stated += here ? 1 : 0;
      if (here) {
        turns.insert(static_cast<int>(i));
        EXPECT_EQ(planted.facts[0].turn, static_cast<int>(i));
        const auto before = static_cast<double>(verbatim.messages[i].content.size());
        EXPECT_NEAR(static_cast<double>(text.size()), before, 40) << text;
        EXPECT_NO_THROW(Json(text).dump()) << "a character was cut";
      } else if (i + 1 < planted.messages.size()) {
        EXPECT_EQ(text, verbatim.messages[i].content);
      }
    }
    EXPECT_EQ(stated, 1);
    EXPECT_NE(planted.messages.back().content.find(planted.facts[0].key), std::string::npos);
    EXPECT_EQ(asks[1].messages[1].content, c->asks({kConversationCell, seed})[1].messages[1].content);
  }
  EXPECT_EQ(turns, (std::set<int>{1, 3}));  // the user's turn and the tool's
}

TEST(OperatorConversation, AShortOrUnfinishedOneGetsAQuestionOfItsOwn) {
  const auto one = parsed(Json::parse(R"([{"role": "user", "content": "hi"}])"));
  const Ask asked = one->asks({kConversationCell, 1})[1];
  ASSERT_EQ(asked.messages.size(), 2u);  // planted in the only turn, asked for in one more
  EXPECT_NE(asked.messages[0].content.find(asked.expected), std::string::npos);
  Json agent = agent_transcript();
  agent["messages"].erase(4);
  agent["messages"].erase(4);
  agent["messages"].erase(4);  // ends with the tool's result
  const Ask after_tool = parsed(agent)->asks({kConversationCell, 1})[1];
  EXPECT_EQ(after_tool.messages.size(), 5u);
  EXPECT_EQ(after_tool.messages.back().role, "user");
}

TEST(OperatorConversation, BadFilesAreRefusedWithThePlace) {
  const auto message = [](const std::string& text) {
    const auto c = OperatorConversation::parse(text, "talk.json");
    return c ? std::string("accepted") : c.error().message;
  };
  EXPECT_EQ(message("{"), "talk.json: is no JSON");
  EXPECT_NE(message("{}").find("has no messages"), std::string::npos);
  EXPECT_NE(message("[]").find("has no messages"), std::string::npos);
  EXPECT_EQ(message(R"([{"content": "x"}])"), "talk.json: message 1: it has no role");
  EXPECT_NE(message(R"([{"role": "user", "content": "x"}, {"role": "robot"}])").find("message 2: its role 'robot'"),
            std::string::npos);
  EXPECT_NE(message(R"([{"role": "user", "content": 7}])").find("no text"), std::string::npos);
  EXPECT_NE(message(R"([{"role": "user", "content": [{"type": "image_url"}]}])").find("text only"), std::string::npos);
  EXPECT_NE(message(R"([{"role": "system", "content": "x"}])").find("no message of a user"), std::string::npos);
  EXPECT_NE(message(std::string(kMaxConversationBytes + 1, ' ')).find("may have"), std::string::npos);
}

TEST(OperatorConversation, ReportsNameItByHashAndLength) {
  const auto c = parsed(agent_transcript());
  EXPECT_NE(c->described().find("6 messages"), std::string::npos);
  EXPECT_NE(c->described().find("1 tools"), std::string::npos);
  EXPECT_EQ(c->described().find("ferry"), std::string::npos);
}

}  // namespace
}  // namespace plumb::investigator
