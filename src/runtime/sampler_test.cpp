#include "runtime/sampler.h"

#include <array>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace plumb {
namespace {

const std::array<float, 5> kLogits{1.0f, 3.0f, 3.0f, -2.0f, 0.5f};

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdAmongEquals) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, 7), 1);
}

TEST(Sampler, TheDrawIsAFunctionOfSeedAndPosition) {
  std::set<std::int32_t> drawn;
  for (std::int64_t position = 0; position < 200; ++position) {
    const Sampling sampling{.temperature = 1.5, .seed = 11};
    const std::int32_t token = sample_token(kLogits, sampling, position);
    EXPECT_EQ(token, sample_token(kLogits, sampling, position));
    drawn.insert(token);
  }
  EXPECT_GE(drawn.size(), 4u);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  std::array<double, 5> count{};
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) ++count[static_cast<std::size_t>(sample_token(kLogits, {.seed = 3}, i))];
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
    top_k.insert(sample_token(kLogits, {.temperature = 5, .top_k = 3}, i));
    top_p.insert(sample_token(kLogits, {.top_p = 0.5}, i));  // ids 1 and 2 hold 0.43 each
    min_p.insert(sample_token(kLogits, {.min_p = 0.1}, i));  // id 0 is at exp(-2) = 0.135 of the largest
  }
  EXPECT_EQ(top_k, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(top_p, (std::set<std::int32_t>{1, 2}));
  EXPECT_EQ(min_p, (std::set<std::int32_t>{0, 1, 2}));
}

TEST(Sampler, ScoresAreLogSoftmaxSortedWithTiesById) {
  const TokenScore score = score_token(kLogits, 0, 3);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit));
  EXPECT_EQ(score.logprob, static_cast<float>(1.0 - std::log(sum)));
  ASSERT_EQ(score.top.size(), 3u);
  EXPECT_EQ(score.top[0].first, 1);
  EXPECT_EQ(score.top[1].first, 2);
  EXPECT_EQ(score.top[2].first, 0);
  EXPECT_EQ(score_token(kLogits, 0, 99).top.size(), kLogits.size());
  EXPECT_TRUE(score_token(kLogits, 4, 0).top.empty());
}

}  // namespace
}  // namespace plumb
