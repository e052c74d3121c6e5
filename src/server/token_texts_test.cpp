#include "server/token_texts.h"

#include <bit>
#include <cmath>
#include <limits>

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

TEST(CompletionLogprobs, SayExactlyWhichTokensAreMeant) {
  const testing_support::ByteEncoding encoding;
  const TokenTexts texts(encoding);
  CompletionLogprobs logprobs(texts);
  logprobs.append_unscored('a', 0);
  // 0x80 and 0x81 are not UTF-8 alone: one text, two tokens.
  logprobs.append({.id = 'b', .logprob = -3.0f, .top = {{0x80, -0.5f}, {0x81, -1.5f}}}, 1);
  const auto json = nlohmann::json::parse(logprobs.take());
  EXPECT_EQ(json["tokens"], (nlohmann::json{"a", "b"}));
  EXPECT_EQ(json["token_logprobs"], (nlohmann::json{nullptr, -3.0}));
  EXPECT_EQ(json["text_offset"], (nlohmann::json{0, 1}));
  EXPECT_EQ(json["token_ids"], (nlohmann::json{'a', 'b'}));
  EXPECT_TRUE(json["top_logprobs"][0].is_null());
  EXPECT_EQ(json["top_logprobs"][1], (nlohmann::json{{"\xef\xbf\xbd", -0.5}, {"b", -3.0}}));
  EXPECT_EQ(json["top_logprob_ids"][1], nlohmann::json::parse("[[128,-0.5],[129,-1.5]]"));
  EXPECT_EQ(nlohmann::json::parse(logprobs.take())["tokens"], nlohmann::json::array());
}

TEST(ChatLogprobs, CarryTheTrueBytes) {
  const testing_support::ByteEncoding encoding;
  const TokenTexts texts(encoding);
  ChatLogprobs logprobs(texts);
  logprobs.append({.id = 0xf0, .logprob = -1.0f, .top = {{0xf0, -1.0f}, {'q', -2.0f}}});
  const auto json = nlohmann::json::parse(logprobs.take())["content"][0];
  EXPECT_EQ(json["token"], "\xef\xbf\xbd");
  EXPECT_EQ(json["bytes"], nlohmann::json{240});
  EXPECT_EQ(json["token_id"], 240);
  EXPECT_EQ(json["top_logprobs"].size(), 2u);
  EXPECT_EQ(json["top_logprobs"][1]["logprob"], -2.0);
}

}  // namespace
}  // namespace plumb::server
