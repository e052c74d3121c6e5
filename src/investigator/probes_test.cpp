#include "investigator/probes.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "investigator/grade.h"
#include "investigator/prompt_reader.h"
#include "investigator/prompts/words.h"

namespace plumb::investigator {
namespace {

using testing::answer_from;
using testing::position_of_value;

constexpr std::uint64_t kSeeds = 200;
const Shape kPhantomShape{.window = 64, .chunk = 256, .page = 128, .index_topk = 64, .max_len = 0};

std::vector<std::string> all_cells() { return cells_of("all", {}).value(); }

TEST(Words, AreTheVocabularysAndDistinct) {
  EXPECT_EQ(words().all.size(), 699u);
  EXPECT_EQ(std::set<std::string_view>(words().all.begin(), words().all.end()).size(), 699u);
  EXPECT_TRUE(is_word("falcon"));
  EXPECT_FALSE(is_word("Falcon"));
  EXPECT_FALSE(is_word(""));
}

TEST(Tokens, CountMarkersWordsAndBytes) {
  EXPECT_EQ(phantom_tokens(""), 0);
  EXPECT_EQ(phantom_tokens("<bos><user> the amber falcon<assistant>"), 6);
  EXPECT_EQ(phantom_tokens(" K7-42-QX"), 9);
  EXPECT_EQ(phantom_tokens("the"), 3);    // no leading space: spelled
  EXPECT_EQ(phantom_tokens(" thex"), 5);  // not in the list: spelled as a whole
  EXPECT_EQ(phantom_tokens(" the the."), 3);
  EXPECT_EQ(phantom_tokens("é"), 2);
  // The example of the phantom's own documentation.
  EXPECT_EQ(phantom_tokens(
                "<bos><user> please remember that the code of the amber falcon is K7-42-QX.<assistant> noted.<eos>"),
            26);
}

TEST(Filler, HasExactlyTheLengthAskedFor) {
  for (int tokens = Author::kMinFill; tokens < 300; ++tokens) {
    Rng rng(static_cast<std::uint64_t>(tokens));
    Author author(rng);
    int sum = 0;
    for (const Turn& t : author.filler(tokens)) sum += phantom_tokens(phantom_turn(t, {}, false));
    EXPECT_EQ(sum, tokens);
  }
}

TEST(Probes, AreFunctionsOfTheSeedAlone) {
  for (const std::string& cell : all_cells())
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Item a = make_item({cell, seed}, Wording::phantom, kPhantomShape);
      const Item b = make_item({cell, seed}, Wording::phantom, kPhantomShape);
      const Item other = make_item({cell, seed + 1}, Wording::phantom, kPhantomShape);
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
      for (const Ask& ask : make_item({cell, seed}, Wording::phantom, kPhantomShape).asks) {
        EXPECT_EQ(phantom_tokens(ask.prompt), ask.prompt_tokens);
        if (ask.expected.empty()) continue;
        EXPECT_EQ(answer_from(ask.prompt), ask.expected) << cell << " seed " << seed << "\n" << ask.prompt;
        // The server's raw continuation is graded right, a changed one wrong.
        Reply reply;
        reply.kind = Reply::Kind::answered;
        reply.text = " " + ask.expected;
        EXPECT_EQ(grade_reply(reply, ask).grade, Grade::right);
      }
}

TEST(Probes, PlainWordingAsksForTheSameFactsWithACheckDigit) {
  for (const std::string& cell : all_cells())
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const Item phantom = make_item({cell, seed}, Wording::phantom, kPhantomShape);
      const Item plain = make_item({cell, seed}, Wording::plain, kPhantomShape);
      ASSERT_EQ(phantom.asks.size(), plain.asks.size());
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
          EXPECT_EQ(ask.expected.substr(0, phantom.asks[i].expected.size()), phantom.asks[i].expected);
          EXPECT_EQ(ask.expected.size(), phantom.asks[i].expected.size() + 2);
        }
        std::string said;
        for (std::size_t m = 0; m + 1 < ask.messages.size(); ++m) said += ask.messages[m].content + "\n";
        EXPECT_NE(said.find(ask.expected), std::string::npos);
        EXPECT_EQ(ask.messages.back().content.find(ask.expected), std::string::npos);
      }
    }
}

TEST(Probes, NeedlesHaveExactlyTheirLength) {
  for (const int length : {96, 256, 512, 1024, 2048})
    for (std::uint64_t seed = 0; seed < 50; ++seed)
      EXPECT_EQ(
          make_item({fmt::format("needle@{}", length), seed}, Wording::phantom, kPhantomShape).asks[0].prompt_tokens,
          length);
}

TEST(Probes, ShortAnswersLieInsideTheWindow) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    EXPECT_LE(make_item({"short", seed}, Wording::phantom, kPhantomShape).asks[0].prompt_tokens, 64 + 12) << seed;
}

TEST(Probes, BoundaryValuesLieAcrossTheChunkBoundaryAndOutOfTheWindow) {
  std::set<int> offsets;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Ask ask = make_item({"boundary", seed}, Wording::phantom, kPhantomShape).asks[0];
    const int begin = position_of_value(ask.prompt, ask.expected);
    EXPECT_LT(begin, 256);
    EXPECT_GE(begin + static_cast<int>(ask.expected.size()) + 1, 256 - 2);
    EXPECT_GT(ask.prompt_tokens - begin, 64 + 9);
    offsets.insert(256 - begin);
  }
  EXPECT_EQ(offsets.size(), 7u);  // every alignment to the ratio-4 groups is tried
}

TEST(Probes, HitStepsShareWhatTheyShould) {
  std::set<int> residues;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto asks = make_item({"hit", seed}, Wording::phantom, kPhantomShape).asks;
    ASSERT_EQ(asks.size(), 5u);
    const Ask &cold = asks[0], &full = asks[1], &partial = asks[2], &prime = asks[3], &extend = asks[4];
    EXPECT_EQ(cold.prompt, full.prompt);
    EXPECT_NE(partial.expected, cold.expected);
    // The fork lies inside the value, behind the end of the first chunk.
    const auto fork = static_cast<std::size_t>(
        std::mismatch(cold.prompt.begin(), cold.prompt.end(), partial.prompt.begin()).first - cold.prompt.begin());
    EXPECT_GE(phantom_tokens(cold.prompt.substr(0, fork)), 256);
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
    EXPECT_LT(phantom_tokens(cold.prompt.substr(0, shared)), 32);
  }
  EXPECT_EQ(residues.size(), 4u);
}

TEST(Probes, LaterTurnsContinueEarlierOnesWithTheirAnswers) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto asks = make_item({"turns", seed}, Wording::phantom, kPhantomShape).asks;
    for (std::size_t i = 1; i < asks.size(); ++i) {
      const std::string before = asks[i - 1].prompt + " " + asks[i - 1].expected;
      EXPECT_EQ(asks[i].prompt.substr(0, before.size()), before);
      EXPECT_TRUE(asks[i].wants_hit);
    }
  }
}

TEST(Probes, ValuesAreNotGuessed) {
  std::set<std::string> seen;
  constexpr std::uint64_t kMany = 2000;
  for (std::uint64_t seed = 0; seed < kMany; ++seed)
    seen.insert(make_item({"short", seed}, Wording::phantom, kPhantomShape).asks[0].expected);
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
