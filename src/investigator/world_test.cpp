#include "investigator/world.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

TEST(World, RequestsCarryWhatTheDeploymentAsks) {
  Ask ask;
  ask.prompt = "<bos><user> \"hi\"<assistant>";
  RequestSpec request;
  request.answer_tokens = 17;
  Json j = Json::parse(request_body(ask, "m", request, R"({"plumb":{"switches":{"a":"on"}},"temperature":0.5})"));
  EXPECT_EQ(j, (Json{{"model", "m"},
                     {"prompt", ask.prompt},
                     {"max_tokens", 17},
                     {"temperature", 0.5},
                     {"plumb", {{"switches", {{"a", "on"}}}}}}));
  ask.messages = {{"user", "hi"}, {"assistant", "yes"}, {"user", "?"}};
  ask.max_tokens = 256;
  ask.ignore_eos = true;
  j = Json::parse(request_body(ask, "", request, ""));
  EXPECT_FALSE(j.contains("model") || j.contains("prompt"));
  EXPECT_EQ(j["messages"].size(), 3u);
  EXPECT_EQ(j["messages"][1]["role"], "assistant");
  EXPECT_EQ(j["max_tokens"], 256);
  EXPECT_EQ(j["ignore_eos"], true);
}

TEST(World, ReadsCompletionsAndChats) {
  const Reply text = parse_reply(
      200,
      R"({"choices":[{"text":" AB12","finish_reason":"stop"}],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}})",
      false);
  EXPECT_EQ(text.kind, Reply::Kind::answered);
  EXPECT_EQ(text.text, " AB12");
  EXPECT_EQ(text.finish_reason, "stop");
  EXPECT_EQ(text.prompt_tokens, 9);
  EXPECT_EQ(text.cached_tokens, 4);
  const Reply chat = parse_reply(
      200, R"({"choices":[{"message":{"content":null,"tool_calls":[{"function":{"arguments":"{\"c\":\"AB12\"}"}}]}}]})",
      true);
  EXPECT_EQ(chat.kind, Reply::Kind::answered);
  EXPECT_NE(chat.text.find("AB12"), std::string::npos);
  EXPECT_FALSE(chat.prompt_tokens.has_value());
}

TEST(World, SortsFailuresByWhoseTheyAre) {
  using Kind = Reply::Kind;
  for (const int status : {408, 429, 500, 502, 503})
    EXPECT_EQ(parse_reply(status, "", false).kind, Kind::infrastructure) << status;
  for (const int status : {400, 404, 413, 422})
    EXPECT_EQ(parse_reply(status, "{}", false).kind, Kind::rejected) << status;
  for (const char* body : {"", "garbage", "[]", "{}", R"({"choices":[]})", R"({"choices":[{}]})", R"({"choices":[7]})",
                           R"({"choices":[{"text":5}]})", "\xff\xfe"})
    EXPECT_EQ(parse_reply(200, body, false).kind, Kind::unparsable) << body;
  EXPECT_NE(parse_reply(400, R"({"error":{"message":"too long"}})", false).text.find("too long"), std::string::npos);
}

}  // namespace
}  // namespace plumb::investigator
