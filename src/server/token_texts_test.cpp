#include "server/token_texts.h"

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "server/test_support.h"

namespace plumb::server {
namespace {

TEST(AppendLogprob, EveryFiniteF32SurvivesJson) {
  Rng rng(3);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(rng.next()));
    std::string text;
    append_logprob(text, value);
    const auto json = nlohmann::json::parse(text);
    if (!std::isfinite(value)) {
      EXPECT_TRUE(json.is_null());
      continue;
    }
    // Equal as doubles already: a reader need not know that it was an f32.
    EXPECT_EQ(json.get<double>(), static_cast<double>(value)) << text;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(json.get<double>())),
              std::bit_cast<std::uint32_t>(value));
  }
}

TEST(TokenTexts, NoTwoTokensHaveTheSame) {
  const auto encoding = load_encoding(std::filesystem::path(PLUMB_SOURCE_DIR) / "phantom/checkpoint");
  ASSERT_TRUE(encoding) << encoding.error().message;
  const TokenTexts texts(**encoding);
  std::set<std::string> seen;
  for (std::int32_t id = 0; id < texts.size(); ++id) {
    EXPECT_TRUE(seen.insert(texts.quoted(id)).second) << id << " " << texts.quoted(id);
    const auto text = nlohmann::json::parse(texts.quoted(id)).get<std::string>();
    EXPECT_EQ(text.find("\xef\xbf\xbd") == text.npos, texts.bytes(id).find("\xef\xbf\xbd") == text.npos) << id;
  }
}

// Whichever token is drawn and however many are listed: its value stands under its own key, and k others or more.
TEST(CompletionLogprobs, ListTheTokenItselfAndLoseNone) {
  const testing_support::ByteEncoding encoding;
  const TokenTexts texts(encoding);
  for (std::int32_t id = 0; id < texts.size(); ++id) {
    CompletionLogprobs logprobs(texts);
    TokenScore score{.id = id, .logprob = -7.5f, .top = {}};
    for (std::int32_t other = 0; other < texts.size(); ++other)
      if (other != id) score.top.emplace_back(other, -1.0f - static_cast<float>(other));
    logprobs.append(score, 0);
    const auto json = nlohmann::json::parse(logprobs.take());
    EXPECT_EQ(json["top_logprobs"][0].size(), static_cast<std::size_t>(texts.size())) << id;
    EXPECT_EQ(json["top_logprobs"][0][json["tokens"][0].get<std::string>()], json["token_logprobs"][0]) << id;
  }
}

TEST(CompletionLogprobs, SayExactlyWhichTokensAreMeant) {
  const testing_support::ByteEncoding encoding;
  const TokenTexts texts(encoding);
  CompletionLogprobs logprobs(texts);
  logprobs.append_unscored('a', 0);
  // 0x80 and 0x81 are not UTF-8 alone.
  logprobs.append({.id = 'b', .logprob = -3.0f, .top = {{0x80, -0.5f}, {0x81, -1.5f}}}, 1);
  const auto json = nlohmann::json::parse(logprobs.take());
  EXPECT_EQ(json["tokens"], (nlohmann::json{"a", "b"}));
  EXPECT_EQ(json["token_logprobs"], (nlohmann::json{nullptr, -3.0}));
  EXPECT_EQ(json["text_offset"], (nlohmann::json{0, 1}));
  EXPECT_EQ(json["token_ids"], (nlohmann::json{'a', 'b'}));
  EXPECT_TRUE(json["top_logprobs"][0].is_null());
  EXPECT_EQ(json["top_logprobs"][1], (nlohmann::json{{"bytes:\\x80", -0.5}, {"bytes:\\x81", -1.5}, {"b", -3.0}}));
  EXPECT_EQ(json["top_logprob_ids"][1], nlohmann::json::parse("[[128,-0.5],[129,-1.5]]"));
  EXPECT_EQ(nlohmann::json::parse(logprobs.take())["tokens"], nlohmann::json::array());
}

TEST(ChatLogprobs, CarryTheTrueBytes) {
  const testing_support::ByteEncoding encoding;
  const TokenTexts texts(encoding);
  ChatLogprobs logprobs(texts);
  logprobs.append({.id = 0xf0, .logprob = -1.0f, .top = {{0xf0, -1.0f}, {'q', -2.0f}}});
  const auto json = nlohmann::json::parse(logprobs.take())["content"][0];
  EXPECT_EQ(json["token"], "bytes:\\xf0");
  EXPECT_EQ(json["bytes"], nlohmann::json{240});
  EXPECT_EQ(json["token_id"], 240);
  EXPECT_EQ(json["top_logprobs"].size(), 2u);
  EXPECT_EQ(json["top_logprobs"][1]["logprob"], -2.0);
}

}  // namespace
}  // namespace plumb::server
