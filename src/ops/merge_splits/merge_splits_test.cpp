#include "ops/merge_splits/merge_splits.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ops/twin.h"

namespace plumb {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

static_assert(kCpuTwin<&merge_splits_ref> == &merge_splits_cpu);

class MergeSplitsOn : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, MergeSplitsOn, testing::Values(Backend::ref, Backend::cpu));

TEST_P(MergeSplitsOn, WeighsPartsByTheirLogSumAndLetsTheSinkInOnce) {
  constexpr std::int64_t kSplits = 7, kTokens = 3, kHeads = 2, kDim = 5;
  Rng rng{81};
  std::vector<float> part = random_floats(rng, kSplits * kTokens * kHeads * kDim);
  std::vector<float> lse = random_floats(rng, kSplits * kTokens * kHeads, 30.0);
  const std::vector<float> sink{0.5f, -2.0f};
  const View<float, 4> parts(part.data(), {kSplits, kTokens, kHeads, kDim});
  const View<float, 3> sums(lse.data(), {kSplits, kTokens, kHeads});
  for (std::int64_t h = 0; h < kHeads; ++h) {  // split 3 saw no key for token 1
    sums(3, 1, h) = kEmpty;
    for (std::int64_t d = 0; d < kDim; ++d) parts(3, 1, h, d) = kPoison;
  }
  Guarded<float> out(kTokens * kHeads * kDim);
  on_backend<&merge_splits_ref>(GetParam())(
      {.part = parts, .lse = sums, .sink = {sink.data(), {kHeads}}, .out = {out.data(), {kTokens, kHeads, kDim}}});
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t h = 0; h < kHeads; ++h)
      for (std::int64_t d = 0; d < kDim; ++d) {
        long double total = std::exp(static_cast<long double>(sink[h])), sum = 0;
        for (std::int64_t s = 0; s < kSplits; ++s) {
          if (sums(s, t, h) == kEmpty) continue;
          total += std::exp(static_cast<long double>(sums(s, t, h)));
          sum += std::exp(static_cast<long double>(sums(s, t, h))) * parts(s, t, h, d);
        }
        EXPECT_NEAR(out.values()[(t * kHeads + h) * kDim + d], static_cast<double>(sum / total),
                    GetParam() == Backend::ref ? 3e-7 : 1e-6);
      }
  EXPECT_TRUE(out.guards_intact());
  std::vector<float> first(out.values().begin(), out.values().end());
  for_each_isa([&](Isa isa) {
    on_backend<&merge_splits_ref>(GetParam())(
        {.part = parts, .lse = sums, .sink = {sink.data(), {kHeads}}, .out = {out.data(), {kTokens, kHeads, kDim}}});
    EXPECT_TRUE(std::equal(first.begin(), first.end(), out.values().begin())) << static_cast<int>(isa);
  });
}

TEST_P(MergeSplitsOn, WhereEverySplitIsEmptyIsZero) {
  const std::vector<float> part(2 * 3, kPoison), lse(2, kEmpty), sink{1.0f};
  for (const bool with_sink : {false, true}) {
    Guarded<float> out(3);
    on_backend<&merge_splits_ref>(GetParam())(
        {.part = {part.data(), {2, 1, 1, 3}},
         .lse = {lse.data(), {2, 1, 1}},
         .sink = with_sink ? View<const float, 1>(sink.data(), {1}) : View<const float, 1>(),
         .out = {out.data(), {1, 1, 3}}});
    for (const float value : out.values()) EXPECT_EQ(value, 0.0f);
  }
}

}  // namespace
}  // namespace plumb
