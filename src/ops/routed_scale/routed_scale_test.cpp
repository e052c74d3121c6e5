#include "ops/routed_scale/routed_scale.h"

#include <gtest/gtest.h>

#include "ops/experts/experts.h"
#include "ops/router/router.h"
#include "ops/twin.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t rows, dim, inner, experts, chosen;
};
class RoutedScaleTwin : public testing::TestWithParam<Shape> {};

// Router weights and experts under both sides: the factor must come once, and never to the shared expert.
TEST_P(RoutedScaleTwin, ScaledOutputIsWithinBudgetOfScaledWeights) {
  const auto [rows, dim, inner, experts, chosen] = GetParam();
  constexpr double kFactor = 2.5;
  Rng rng{141};
  const std::vector<float> x = random_floats(rng, rows * dim), logits = random_floats(rng, rows * experts, 2.0);
  std::vector<std::vector<float>> memory;
  const auto mlp = [&]() -> GatedMlp {
    for (int i = 0; i < 3; ++i) memory.push_back(random_floats(rng, dim * inner, 0.4));
    const std::size_t at = memory.size() - 3;
    return {{memory[at].data(), {dim, inner}},
            {memory[at + 1].data(), {dim, inner}},
            {memory[at + 2].data(), {inner, dim}}};
  };
  std::vector<GatedMlp> routed;
  for (std::int64_t e = 0; e < experts; ++e) routed.push_back(mlp());
  const GatedMlp shared = mlp();
  const std::vector<float> bias(static_cast<std::size_t>(experts), 0.0f);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows * chosen));
  const View<std::int32_t, 2> id_view(ids.data(), {rows, chosen});
  select_experts_ref(
      {.logits = {logits.data(), {rows, experts}}, .bias = {bias.data(), {experts}}, .experts = id_view});
  ExpertsScratch scratch;
  const auto run = [&](RoutedScale (*side)(double), Guarded<float>& out) {
    const RoutedScale scale = side(kFactor);
    std::vector<float> weights(ids.size());
    expert_weights_ref({.logits = {logits.data(), {rows, experts}},
                        .experts = id_view,
                        .scaling = scale.router,
                        .weights = {weights.data(), {rows, chosen}}});
    experts_ref({.x = {x.data(), {rows, dim}},
                 .experts = id_view,
                 .weights = {weights.data(), {rows, chosen}},
                 .routed = routed,
                 .shared = shared,
                 .limit = 7.0,
                 .output_scale = scale.output,
                 .out = {out.data(), {rows, dim}},
                 .scratch = &scratch});
  };
  Guarded<float> off(rows * dim), on(rows * dim);
  run(Sides<"moe.scale_on_output">::off, off);
  run(Sides<"moe.scale_on_output">::on, on);
  EXPECT_TWIN("moe.scale_on_output", on, off.values());
  RecordProperty("nmse", testing::PrintToString(nmse(on.values(), off.values())));
}
INSTANTIATE_TEST_SUITE_P(Shapes, RoutedScaleTwin,
                         testing::Values(Shape{1, 8, 6, 3, 1}, Shape{37, 24, 10, 8, 2}, Shape{20, 64, 32, 16, 6}));

TEST(RoutedScale, TheFactorIsAppliedOnceOnEitherSide) {
  for (const double factor : {1.0, 1.5, 2.5})
    for (const RoutedScale scale : {scale_in_router(factor), scale_on_output(factor)})
      EXPECT_EQ(scale.router * scale.output, factor);
}

}  // namespace
}  // namespace plumb
