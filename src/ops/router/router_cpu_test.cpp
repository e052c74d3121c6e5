#include <gtest/gtest.h>

#include "ops/router/router.h"
#include "ops/twin.h"

namespace plumb {
namespace {

static_assert(kCpuTwin<&select_experts_ref> == &select_experts_cpu);

TEST(RouterCpu, ChoosesExactlyWhatTheReferenceChooses) {
  Rng rng{102};
  for (int round = 0; round < 200; ++round) {
    const std::int64_t tokens = rng.between(1, 4), experts = rng.between(1, 40), k = rng.between(1, experts);
    std::vector<float> logits = random_floats(rng, tokens * experts, rng.below(2) == 0 ? 1.0 : 15.0);
    std::vector<float> bias = random_floats(rng, experts, 0.3);
    if (rng.below(3) == 0)  // ties, and what a broken model makes
      for (float& logit : logits)
        logit = rng.below(5) == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(rng.between(-2, 2));
    if (rng.below(3) == 0) std::fill(bias.begin(), bias.end(), 0.0f);
    const auto run = [&](void (*side)(const SelectExperts&)) {
      Guarded<std::int32_t> out(tokens * k);
      side({.logits = {logits.data(), {tokens, experts}},
            .bias = {bias.data(), {experts}},
            .experts = {out.data(), {tokens, k}}});
      EXPECT_TRUE(out.guards_intact());
      return std::vector<std::int32_t>(out.values().begin(), out.values().end());
    };
    const std::vector<std::int32_t> want = run(&select_experts_ref);
    for_each_isa([&](Isa isa) { ASSERT_EQ(run(&select_experts_cpu), want) << round << ' ' << static_cast<int>(isa); });
  }
}

}  // namespace
}  // namespace plumb
