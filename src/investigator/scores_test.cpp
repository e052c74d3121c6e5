#include "investigator/scores.h"

#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "investigator/world.h"

namespace plumb::investigator {
namespace {

using Json = nlohmann::json;

TEST(ScoreItems, CoverBothPathsAndStatesAndHaveStableNames) {
  std::set<std::string> names;
  int hits = 0;
  const auto items = score_items({});
  for (std::size_t i = 0; i < items.size(); ++i) {
    EXPECT_TRUE(names.insert(name_of(items[i])).second);
    EXPECT_EQ(parse_score_item(name_of(items[i])).value(), items[i]);
    if (items[i].state == CacheState::cold) continue;
    ++hits;
    // A hit follows the same text cold, or it would be none.
    ASSERT_GT(i, 0u);
    ScoreItem cold = items[i];
    cold.state = CacheState::cold;
    EXPECT_EQ(items[i - 1], cold);
    EXPECT_EQ(items[i].path, ScorePath::generated);
  }
  EXPECT_GT(hits, 3);
  EXPECT_FALSE(parse_score_item("scored/hit/256/0"));
  EXPECT_FALSE(parse_score_item("scored/cold/256/999"));
  EXPECT_FALSE(parse_score_item(""));
  for (const ScoreItem& item : score_items({.max_len = 600})) EXPECT_LE(item.length, 588);
}

TEST(ScoreItems, TextsFollowFromTheSeedAndHaveAboutTheirLength) {
  for (const ScoreItem& item : score_items({})) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const ScoreAsk ask = make_score_ask(item, seed, Wording::v4);
      EXPECT_EQ(ask.prompt, make_score_ask(item, seed, Wording::v4).prompt);
      EXPECT_NE(ask.prompt, make_score_ask(item, seed + 1, Wording::v4).prompt);
      EXPECT_NEAR(ask.prompt_tokens, item.length, 0.3 * item.length) << name_of(item);
      EXPECT_TRUE(ask.messages.empty());
      EXPECT_FALSE(ask.prompt.ends_with("<｜end▁of▁sentence｜>"));  // the last question is open
    }
    const ScoreAsk plain = make_score_ask(item, 1, Wording::plain);
    EXPECT_EQ(plain.messages.empty(), item.path == ScorePath::scored);
    EXPECT_EQ(plain.prompt.find("<｜User｜>"), std::string::npos);
  }
}

TEST(ScoreRequests, AskForWhatTheirPathNeeds) {
  RequestSpec request;
  const ScoreAsk scored = make_score_ask(score_items({}).front(), 1, Wording::v4);
  Json j = Json::parse(score_body(scored, "m", request, R"({"plumb":{"switches":{"a":"on"}}})"));
  EXPECT_EQ(j, (Json{{"model", "m"},
                     {"prompt", scored.prompt},
                     {"echo", true},
                     {"logprobs", 1},
                     {"max_tokens", 1},
                     {"temperature", 0},
                     {"plumb", {{"switches", {{"a", "on"}}}}}}));
  const ScoreAsk chat = make_score_ask(score_items({}).back(), 1, Wording::plain);
  j = Json::parse(score_body(chat, "", request, ""));
  EXPECT_TRUE(j["messages"].is_array() && !j.contains("prompt") && !j.contains("echo"));
  EXPECT_EQ(j["logprobs"], true);
  EXPECT_EQ(j["top_logprobs"], 5);
  EXPECT_GT(j["max_tokens"], 1);
}

constexpr const char* kEchoed = R"({"choices":[{"text":"abc","logprobs":{"tokens":["a","b","c"],
  "token_logprobs":[null,-0.5,-0.25],"top_logprobs":[null,{"b":-0.5},{"c":-0.25}]}}],
  "usage":{"prompt_tokens":2,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}})";

TEST(ScoreReplies, OfAScoredTextAreThePromptsTokensAfterTheFirst) {
  const std::string longer = R"({"choices":[{"text":"abcd","logprobs":{"tokens":["a","b","c","d"],
    "token_logprobs":[null,-0.5,-9999.0,-1]}}],"usage":{"prompt_tokens":3,"completion_tokens":1}})";
  const Scores s = parse_scores(200, longer, ScorePath::scored);
  EXPECT_EQ(s.status, Scores::Status::measured);
  EXPECT_EQ(s.log_probabilities, (std::vector<double>{-0.5, kLeastLogProbability}));
  EXPECT_FALSE(s.tokens_hash.empty());
  EXPECT_EQ(s.prompt_tokens, 3);
  const Scores two = parse_scores(200, kEchoed, ScorePath::scored);
  EXPECT_EQ(two.log_probabilities, (std::vector<double>{-0.5}));
  EXPECT_EQ(two.cached_tokens, 0);
  EXPECT_NE(two.tokens_hash, s.tokens_hash);
}

TEST(ScoreReplies, OfGeneratedTokensHaveTheirLists) {
  const std::string completion =
      R"({"choices":[{"text":"xy","logprobs":{"tokens":["x","y"],"token_logprobs":[-0.1,-0.2],
    "top_logprobs":[{"x":-0.1,"z":-3},{"z":-2,"y":-0.2}]}}],"usage":{"prompt_tokens":9,
    "prompt_tokens_details":{"cached_tokens":4}}})";
  const Scores s = parse_scores(200, completion, ScorePath::generated);
  ASSERT_EQ(s.status, Scores::Status::measured);
  EXPECT_EQ(s.generated, (std::vector<GeneratedToken>{{{"x", -0.1}, {{"x", -0.1}, {"z", -3}}},
                                                      {{"y", -0.2}, {{"y", -0.2}, {"z", -2}}}}));
  EXPECT_EQ(s.cached_tokens, 4);
  const std::string chat = R"({"choices":[{"message":{"content":"x"},"logprobs":{"content":[{"token":"x","logprob":-0.1,
    "top_logprobs":[{"token":"x","logprob":-0.1},{"token":"z","logprob":-3}]}]}}]})";
  const Scores c = parse_scores(200, chat, ScorePath::generated);
  ASSERT_EQ(c.status, Scores::Status::measured);
  EXPECT_EQ(c.generated, (std::vector<GeneratedToken>{{{"x", -0.1}, {{"x", -0.1}, {"z", -3}}}}));
}

TEST(ScoreReplies, WithoutLogProbabilitiesAreNotOffered) {
  using Status = Scores::Status;
  for (const ScorePath path : {ScorePath::scored, ScorePath::generated}) {
    for (const char* body : {R"({"choices":[{"text":"abc","logprobs":null}]})", R"({"choices":[{"text":"abc"}]})",
                             R"({"choices":[{"text":"abc","logprobs":{"tokens":["a"],"token_logprobs":[]}}]})",
                             R"({"choices":[{"text":"abc","logprobs":[1,2]}]})",
                             R"({"choices":[{"text":"a","logprobs":{"content":[]}}]})", "garbage", "{}"}) {
      const Scores s = parse_scores(200, body, path);
      EXPECT_EQ(s.status, Status::not_offered) << body;
      EXPECT_FALSE(s.message.empty());
    }
    const Scores refused = parse_scores(400, R"({"error":{"message":"echo is not supported"}})", path);
    EXPECT_EQ(refused.status, Status::not_offered);
    EXPECT_NE(refused.message.find("echo is not supported"), std::string::npos);
    for (const int status : {429, 500, 503}) EXPECT_EQ(parse_scores(status, "", path).status, Status::unanswered);
  }
  // Only the generated token came back: the prompt was not echoed.
  const std::string one = R"({"choices":[{"text":"x","logprobs":{"tokens":["x"],"token_logprobs":[-0.1]}}],
    "usage":{"prompt_tokens":9,"completion_tokens":1}})";
  EXPECT_EQ(parse_scores(200, one, ScorePath::scored).status, Status::not_offered);
}

}  // namespace
}  // namespace plumb::investigator
