#include <gtest/gtest.h>

#include "ops/select_topk/select_topk.h"
#include "ops/twin.h"

namespace plumb {
namespace {

static_assert(kCpuTwin<&select_topk_ref> == &select_topk_cpu);

// Scores as they may come: spread out, many ties, both zeros, infinities, NaN.
float any_score(Rng& rng, std::uint64_t kind) {
  const std::uint64_t special = rng.below(40);
  if (kind == 2 && special == 0) return std::numeric_limits<float>::quiet_NaN();
  if (kind == 2 && special == 1) return std::numeric_limits<float>::infinity();
  if (kind == 2 && special == 2) return -std::numeric_limits<float>::infinity();
  if (kind == 2 && special == 3) return -0.0f;
  return kind == 0 ? static_cast<float>(rng.normal()) : static_cast<float>(rng.between(-3, 3)) * 0.25f;
}

TEST(SelectTopkCpu, TakesExactlyWhatTheReferenceTakes) {
  Rng rng{62};
  for (int round = 0; round < 400; ++round) {
    const std::int64_t tokens = rng.between(1, 5), rate = rng.below(2) == 0 ? 4 : 1, k = rng.between(0, 70);
    const std::int64_t first = rng.between(0, 900), rows = (first + tokens) / rate + rng.between(0, 3);
    const std::uint64_t kind = rng.below(3);
    std::vector<float> scores;
    for (std::int64_t i = 0; i < tokens * rows; ++i) scores.push_back(any_score(rng, kind));
    const auto run = [&](void (*side)(const SelectTopk&)) {
      Guarded<std::int32_t> out(tokens * k);
      side({.scores = {scores.data(), {tokens, rows}},
            .first_position = first,
            .rate = rate,
            .selected = {out.data(), {tokens, k}}});
      EXPECT_TRUE(out.guards_intact());
      return std::vector<std::int32_t>(out.values().begin(), out.values().end());
    };
    const std::vector<std::int32_t> want = run(&select_topk_ref);
    for_each_isa([&](Isa isa) { ASSERT_EQ(run(&select_topk_cpu), want) << round << ' ' << static_cast<int>(isa); });
  }
}

}  // namespace
}  // namespace plumb
