#include "investigator/probes.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "investigator/grade.h"
#include "investigator/prompt_reader.h"
#include "investigator/prompts/words.h"
#include "model/tokenizer.h"

namespace plumb::investigator {
namespace {

using testing::answer_from;
using testing::position_of_value;

constexpr std::uint64_t kSeeds = 100;
const Shape kPhantomShape{.window = 64, .chunk = 256, .page = 128, .index_topk = 64, .max_len = 0};

std::vector<std::string> all_cells() { return cells_of("all", {}).value(); }

int tokenized(std::string_view text) {
  static const auto phantom = Tokenizer::load(std::filesystem::path(PLUMB_SOURCE_DIR) / "phantom/v4/tokenizer.json");
  return static_cast<int>(phantom.value().encode(text, Specials::parse).size());
}

TEST(Words, AreDistinctAndOneTokenEach) {
  EXPECT_EQ(std::set<std::string_view>(words().all.begin(), words().all.end()).size(), words().all.size());
  for (const std::string_view word : words().all) EXPECT_EQ(tokenized(" " + std::string(word)), 1) << word;
  for (const std::string_view word : words().filler) EXPECT_TRUE(is_word(word)) << word;
  EXPECT_FALSE(is_word("Code"));
  EXPECT_FALSE(is_word(""));
}

TEST(Tokens, AreThoseOfThePhantomsTokenizer) {
  EXPECT_EQ(v4_tokens(""), 0);
  for (const char* text : {"so the code of [bakoru] is \"K7-42-QX\".", "hi, tell me the pin of (bakoru).",
                           "ok, *bakoru* has the label [AB12].<｜end▁of▁sentence｜>", "K7-42-QX"})
    EXPECT_EQ(v4_tokens(text), tokenized(text)) << text;
  for (const std::string& cell : all_cells())
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
      for (const Ask& ask : make_item({cell, seed}, Wording::v4, kPhantomShape).asks)
        ASSERT_EQ(ask.prompt_tokens, tokenized(ask.prompt)) << cell << " seed " << seed << "\n" << ask.prompt;
}

TEST(Tokens, AnAnswerIsSpeltAndEndsAtTheMarkBehindIt) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Ask ask = make_item({"turns", seed}, Wording::v4, kPhantomShape).asks.back();
    for (const Fact& fact : ask.facts) {
      EXPECT_EQ(tokenized(fact.value), static_cast<int>(fact.value.size())) << fact.value;
      EXPECT_EQ(tokenized("[" + fact.key + "]"), static_cast<int>(fact.key.size()) + 2) << fact.key;
    }
  }
}

TEST(Filler, HasExactlyTheLengthAskedFor) {
  for (int tokens = Author::kMinFill; tokens < 300; ++tokens) {
    Rng rng(static_cast<std::uint64_t>(tokens));
    Author author(rng);
    int sum = 0;
    for (const Turn& t : author.filler(tokens)) sum += v4_tokens(v4_turn(t, {}, false));
    EXPECT_EQ(sum, tokens);
  }
}

TEST(Probes, AreFunctionsOfTheSeedAlone) {
  for (const std::string& cell : all_cells())
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Item a = make_item({cell, seed}, Wording::v4, kPhantomShape);
      const Item b = make_item({cell, seed}, Wording::v4, kPhantomShape);
      const Item other = make_item({cell, seed + 1}, Wording::v4, kPhantomShape);
      ASSERT_EQ(a.asks.size(), b.asks.size());
      for (std::size_t i = 0; i < a.asks.size(); ++i) {
        EXPECT_EQ(a.asks[i].prompt, b.asks[i].prompt);
        EXPECT_EQ(a.asks[i].expected, b.asks[i].expected);
      }
      EXPECT_NE(a.asks[0].prompt, other.asks[0].prompt) << cell;
    }
}

TEST(Probes, EveryPromptSaysWhatItAsksFor) {
  for (const std::string& cell : all_cells())
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
      for (const Ask& ask : make_item({cell, seed}, Wording::v4, kPhantomShape).asks) {
        EXPECT_EQ(v4_tokens(ask.prompt), ask.prompt_tokens);
        if (ask.expected.empty()) continue;
        EXPECT_EQ(answer_from(ask.prompt), ask.expected) << cell << " seed " << seed << "\n" << ask.prompt;
        // The server's raw continuation is graded right, a changed one wrong.
        Reply reply;
        reply.kind = Reply::Kind::answered;
        reply.text = ask.expected;
        EXPECT_EQ(grade_reply(reply, ask).grade, Grade::right);
      }
}

TEST(Probes, PlainWordingAsksForTheSameFactsWithACheckDigit) {
  for (const std::string& cell : all_cells())
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const Item v4 = make_item({cell, seed}, Wording::v4, kPhantomShape);
      const Item plain = make_item({cell, seed}, Wording::plain, kPhantomShape);
      ASSERT_EQ(v4.asks.size(), plain.asks.size());
      for (std::size_t i = 0; i < plain.asks.size(); ++i) {
        const Ask& ask = plain.asks[i];
        EXPECT_TRUE(ask.prompt.empty());
        ASSERT_FALSE(ask.messages.empty());
        EXPECT_EQ(ask.messages.back().role, "user");
        if (ask.expected.empty()) continue;
        if (ask.boundary > 0) {
          EXPECT_EQ(cell, "boundary");
          EXPECT_EQ(ask.expected.size(), 10u);  // a long code, whatever the phantom is asked
        } else {
          EXPECT_EQ(ask.expected.substr(0, v4.asks[i].expected.size()), v4.asks[i].expected);
          EXPECT_EQ(ask.expected.size(), v4.asks[i].expected.size() + 2);
        }
        std::string said;
        for (std::size_t m = 0; m + 1 < ask.messages.size(); ++m) said += ask.messages[m].content + "\n";
        EXPECT_NE(said.find(ask.expected), std::string::npos);
        EXPECT_EQ(ask.messages.back().content.find(ask.expected), std::string::npos);
      }
    }
}

TEST(Probes, NeedlesHaveExactlyTheirLength) {
  for (const int length : {128, 256, 512, 1024, 2048})
    for (std::uint64_t seed = 0; seed < 50; ++seed)
      EXPECT_EQ(make_item({fmt::format("needle@{}", length), seed}, Wording::v4, kPhantomShape).asks[0].prompt_tokens,
                length);
}

TEST(Probes, ShortAnswersLieInsideTheWindow) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Ask ask = make_item({"short", seed}, Wording::v4, kPhantomShape).asks[0];
    EXPECT_LE(ask.prompt_tokens - position_of_value(ask.prompt, ask.expected), 64) << seed;
  }
}

TEST(Probes, BoundaryValuesLieAcrossTheChunkBoundaryAndOutOfTheWindow) {
  std::set<int> offsets;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Ask ask = make_item({"boundary", seed}, Wording::v4, kPhantomShape).asks[0];
    const int begin = position_of_value(ask.prompt, ask.expected);
    EXPECT_LT(begin, 256);
    EXPECT_GT(begin + static_cast<int>(ask.expected.size()), 256);
    EXPECT_GT(ask.prompt_tokens - begin, 64 + 9);
    offsets.insert(256 - begin);
  }
  EXPECT_EQ(offsets.size(), 7u);  // every alignment to the ratio-4 groups is tried
}

TEST(Probes, HitStepsShareWhatTheyShould) {
  std::set<int> residues;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto asks = make_item({"hit", seed}, Wording::v4, kPhantomShape).asks;
    ASSERT_EQ(asks.size(), 5u);
    const Ask &cold = asks[0], &full = asks[1], &partial = asks[2], &prime = asks[3], &extend = asks[4];
    EXPECT_EQ(cold.prompt, full.prompt);
    EXPECT_NE(partial.expected, cold.expected);
    // The fork lies inside the value, behind the end of the first chunk.
    const auto fork = static_cast<std::size_t>(
        std::mismatch(cold.prompt.begin(), cold.prompt.end(), partial.prompt.begin()).first - cold.prompt.begin());
    EXPECT_GE(v4_tokens(cold.prompt.substr(0, fork)), 256);
    EXPECT_LE(position_of_value(cold.prompt, cold.expected), 255);
    // More than top-k entries follow the fact.
    EXPECT_GT(cold.prompt_tokens - 256, 4 * 64);
    EXPECT_EQ(extend.prompt.substr(0, prime.prompt.size()), prime.prompt);
    EXPECT_TRUE(prime.expected.empty());
    EXPECT_EQ(prime.max_tokens, 1);
    residues.insert(prime.prompt_tokens % 4);
    EXPECT_TRUE(full.wants_hit && partial.wants_hit && extend.wants_hit && !cold.wants_hit && !prime.wants_hit);
    // Two prompts that should be cold share less than a page.
    const auto shared = static_cast<std::size_t>(
        std::mismatch(cold.prompt.begin(), cold.prompt.end(), extend.prompt.begin(), extend.prompt.end()).first -
        cold.prompt.begin());
    EXPECT_LT(v4_tokens(cold.prompt.substr(0, shared)), 32);
  }
  EXPECT_EQ(residues.size(), 4u);
}

TEST(Probes, LaterTurnsContinueEarlierOnesWithTheirAnswers) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto asks = make_item({"turns", seed}, Wording::v4, kPhantomShape).asks;
    for (std::size_t i = 1; i < asks.size(); ++i) {
      const std::string before = asks[i - 1].prompt + asks[i - 1].expected;
      EXPECT_EQ(asks[i].prompt.substr(0, before.size()), before);
      EXPECT_TRUE(asks[i].wants_hit);
    }
  }
}

TEST(Probes, ValuesAreNotGuessed) {
  std::set<std::string> seen;
  constexpr std::uint64_t kMany = 2000;
  for (std::uint64_t seed = 0; seed < kMany; ++seed)
    seen.insert(make_item({"short", seed}, Wording::v4, kPhantomShape).asks[0].expected);
  EXPECT_GE(seen.size(), kMany - 40);  // collisions of two 67,600-value formats among 800 draws: about 5
}

TEST(Probes, SuitesAreCheckedByName) {
  EXPECT_EQ(cells_of("needle", {128, 300}).value(), (std::vector<std::string>{"needle@128", "needle@300"}));
  EXPECT_EQ(cells_of("all", {}).value().size(), 8u);
  EXPECT_FALSE(cells_of("needles", {}));
  EXPECT_FALSE(cells_of("needle", {7}));
  EXPECT_FALSE(probe_of("needle"));
  EXPECT_FALSE(probe_of("needle@12x"));
  EXPECT_FALSE(probe_of("short@12"));
  EXPECT_TRUE(probe_of("repetition").value()->weak);
}

}  // namespace
}  // namespace plumb::investigator
