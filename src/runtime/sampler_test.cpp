#include "runtime/sampler.h"

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "runtime/top_ids.h"

namespace plumb {
namespace {

const std::array<float, 5> kLogits{1.0f, 3.0f, 3.0f, -2.0f, 0.5f};
const Settings kOff;

std::int32_t sample(std::span<const float> logits, const Sampling& sampling, std::int64_t position) {
  return sample_token(logits, sampling, position, kOff);
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdAmongEquals) { EXPECT_EQ(sample(kLogits, {.temperature = 0}, 7), 1); }

TEST(Sampler, TheDrawIsAFunctionOfSeedAndPosition) {
  std::set<std::int32_t> drawn;
  for (std::int64_t position = 0; position < 200; ++position) {
    const Sampling sampling{.temperature = 1.5, .seed = 11};
    const std::int32_t token = sample(kLogits, sampling, position);
    EXPECT_EQ(token, sample(kLogits, sampling, position));
    drawn.insert(token);
  }
  EXPECT_GE(drawn.size(), 4u);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  std::array<double, 5> count{};
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) ++count[static_cast<std::size_t>(sample(kLogits, {.seed = 3}, i))];
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit));
  for (std::size_t i = 0; i < kLogits.size(); ++i) {
    const double p = std::exp(static_cast<double>(kLogits[i])) / sum;
    EXPECT_NEAR(count[i] / kDraws, p, 4 * std::sqrt(p * (1 - p) / kDraws)) << "id " << i;
  }
}

TEST(Sampler, FiltersKeepWhatTheyPromise) {
  std::set<std::int32_t> top_k;
  std::set<std::int32_t> top_p;
  std::set<std::int32_t> min_p;
  for (int i = 0; i < 2000; ++i) {
    top_k.insert(sample(kLogits, {.temperature = 5, .top_k = 3}, i));
    top_p.insert(sample(kLogits, {.top_p = 0.5}, i));  // ids 1 and 2 hold 0.43 each
    min_p.insert(sample(kLogits, {.min_p = 0.1}, i));  // id 0 is at exp(-2) = 0.135 of the largest
  }
  EXPECT_EQ(top_k, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(top_p, (std::set<std::int32_t>{1, 2}));
  EXPECT_EQ(min_p, (std::set<std::int32_t>{0, 1, 2}));
}

TEST(Sampler, ScoresAreLogSoftmaxSortedWithTiesById) {
  const TokenScore score = score_token(kLogits, 0, 3, kOff);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit));
  EXPECT_EQ(score.logprob, static_cast<float>(1.0 - std::log(sum)));
  ASSERT_EQ(score.top.size(), 3u);
  EXPECT_EQ(score.top[0].first, 1);
  EXPECT_EQ(score.top[1].first, 2);
  EXPECT_EQ(score.top[2].first, 0);
  EXPECT_EQ(score_token(kLogits, 0, 99, kOff).top.size(), kLogits.size());
  EXPECT_TRUE(score_token(kLogits, 4, 0, kOff).top.empty());
}

// Logits as rows really are (near-normal), of few values (many ties), and all equal.
std::vector<float> random_logits(Rng& rng, std::size_t count) {
  const std::uint64_t values = std::array<std::uint64_t, 3>{0, 5, 1}[rng.below(3)];
  std::vector<float> logits(count);
  for (float& logit : logits)
    logit = static_cast<float>(values == 0 ? 3 * rng.normal() : static_cast<double>(rng.below(values)));
  return logits;
}

TEST(TopIds, SelectionGivesTheIdsOfTheSortInTheSameOrder) {
  Rng rng{31};
  for (int round = 0; round < 400; ++round) {
    const auto logits = random_logits(rng, 1 + rng.below(round % 20 == 0 ? 5000 : 300));
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, static_cast<std::size_t>(rng.below(logits.size() + 1)),
          logits.size() - 1, logits.size(), logits.size() + 7})
      ASSERT_EQ(top_ids_selected(logits, count), top_ids_sorted(logits, count))
          << "round " << round << ", " << count << " of " << logits.size();
  }
}

// sampler.fast_topk changes no token and no log-probability.
TEST(Sampler, FastTopkIsEqualToTheBit) {
  Settings on;
  ASSERT_TRUE(on.set("sampler.fast_topk", "on"));
  Rng rng{32};
  for (int round = 0; round < 2000; ++round) {
    const auto logits = random_logits(rng, 1 + rng.below(round % 20 == 0 ? 5000 : 300));
    const Sampling sampling{.temperature = rng.uniform() * 4,
                            .top_p = rng.below(2) == 0 ? 1.0 : rng.uniform(),
                            .top_k = rng.below(2) == 0 ? 0 : static_cast<int>(rng.below(400)),
                            .min_p = rng.below(2) == 0 ? 0.0 : rng.uniform() * 0.2,
                            .seed = rng.next()};
    const std::int32_t token = sample_token(logits, sampling, round, kOff);
    ASSERT_EQ(sample_token(logits, sampling, round, on), token);
    const int top = static_cast<int>(rng.below(30)) - 1;
    ASSERT_EQ(score_token(logits, token, top, on), score_token(logits, token, top, kOff));
  }
}

// Deep draws need more ranks than are looked up at first: a flat distribution over many ids reaches all of them.
TEST(Sampler, AFlatDistributionReachesEveryPartOfTheVocabulary) {
  Settings on;
  ASSERT_TRUE(on.set("sampler.fast_topk", "on"));
  const std::vector<float> logits(20000, 1.5f);
  std::array<int, 10> tenths{};
  for (int i = 0; i < 400; ++i) ++tenths[static_cast<std::size_t>(sample_token(logits, {.seed = 5}, i, on)) / 2000];
  for (const int count : tenths) EXPECT_NEAR(count, 40, 30);  // five standard deviations
}

TEST(Sampler, WhatHasNoWeightIsNeverDrawn) {
  std::vector<float> logits(100, -1000.0f);  // exp(-1000) is 0
  logits[7] = 0;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(sample(logits, {.seed = 6}, i), 7);
}

TEST(AdjustLogits, FollowsTheFormulaInItsOrder) {
  SeenTokens seen(std::array{0, 3});
  for (const std::int32_t id : {1, 1, 3}) seen.add_generated(id);
  const Sampling sampling{.presence_penalty = 0.5,
                          .frequency_penalty = 0.25,
                          .repetition_penalty = 2,
                          .logit_bias = {{0, -2.0f}, {1, 1.0f}, {4, 8.0f}}};
  std::array<float, 5> logits = kLogits;
  adjust_logits(logits, sampling, seen);
  EXPECT_EQ(logits[0], (1.0f - 2.0f) * 2);                     // prompt: repetition alone, on the biased logit
  EXPECT_EQ(logits[1], (3.0f + 1.0f) / 2 - 2 * 0.25f - 0.5f);  // generated twice
  EXPECT_EQ(logits[2], 3.0f);                                  // neither seen nor biased
  EXPECT_EQ(logits[3], -2.0f * 2 - 0.25f - 0.5f);              // prompt, and generated once
  EXPECT_EQ(logits[4], 8.5f);                                  // biased alone
}

TEST(AdjustLogits, NeutralSamplingIsKnownAndExtremesStayFinite) {
  EXPECT_FALSE(adjusts_logits({}));
  for (const Sampling& sampling : {Sampling{.presence_penalty = 1}, Sampling{.frequency_penalty = 1},
                                   Sampling{.repetition_penalty = 1.1}, Sampling{.logit_bias = {{2, 0.5f}}}})
    EXPECT_TRUE(adjusts_logits(sampling));
  std::array<float, 2> logits{1.0f, -1.0f};
  adjust_logits(logits, {.repetition_penalty = std::numeric_limits<double>::min()}, SeenTokens(std::array{0, 1}));
  EXPECT_EQ(logits[0], std::numeric_limits<float>::max());
  EXPECT_EQ(logits[1], 0.0f);
  adjust_logits(logits, {.repetition_penalty = 1e300}, SeenTokens(std::array{0, 1}));
  for (const float logit : logits) EXPECT_TRUE(std::isfinite(logit));
}

}  // namespace
}  // namespace plumb
