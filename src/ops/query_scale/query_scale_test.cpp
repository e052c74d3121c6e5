#include "ops/query_scale/query_scale.h"

#include <cmath>

#include <gtest/gtest.h>

#include "ops/sparse_attention/sparse_attention.h"
#include "ops/twin.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t tokens, heads, dim, first_position;
};
class QueryScaleTwin : public testing::TestWithParam<Shape> {};

// The switch's measure is what attention makes of the queries: queries of both sides over the same window.
TEST_P(QueryScaleTwin, AttentionIsWithinBudgetOfUnroundedQueries) {
  const auto [tokens, heads, dim, first_position] = GetParam();
  Rng rng{131};
  const std::int64_t positions = first_position + tokens;
  std::vector<float> keys = random_floats(rng, 128 * ((positions + 127) / 128) * dim);
  std::vector<float*> pages;
  for (std::int64_t p = 0; p < positions; p += 128) pages.push_back(keys.data() + p * dim);
  const std::vector<float> sinks(static_cast<std::size_t>(heads), 0.3f);
  const std::vector<float> queries = random_floats(rng, tokens * heads * dim);
  AttentionScratch scratch;
  const auto attend = [&](double (*side)(const QueryScale&), Guarded<float>& out) {
    Guarded<float> q(tokens * heads * dim);
    std::copy(queries.begin(), queries.end(), q.data());
    const View<float, 3> view(q.data(), {tokens, heads, dim});
    const double scale = side({.q = view});
    EXPECT_TRUE(q.guards_intact());
    sparse_attention_ref({.q = view,
                          .scale = scale,
                          .first_position = first_position,
                          .window_rows = {pages, 0, 128, dim},
                          .window = 128,
                          .rows = {},
                          .rate = 0,
                          .selected = {},
                          .sinks = {sinks.data(), {heads}},
                          .out = {out.data(), {tokens, heads, dim}},
                          .scratch = &scratch});
  };
  Guarded<float> off(tokens * heads * dim), on(tokens * heads * dim);
  attend(Sides<"attention.q_bf16">::off, off);
  attend(Sides<"attention.q_bf16">::on, on);
  EXPECT_TWIN("attention.q_bf16", on, off.values());
  RecordProperty("nmse", testing::PrintToString(nmse(on.values(), off.values())));
}
INSTANTIATE_TEST_SUITE_P(Shapes, QueryScaleTwin,
                         testing::Values(Shape{1, 1, 8, 3}, Shape{9, 4, 32, 120}, Shape{3, 8, 512, 700},
                                         Shape{20, 4, 128, 500}));

TEST(QueryScale, RoundsAfterScalingAndLeavesNothingToMultiply) {
  Rng rng{132};
  const std::vector<float> x = random_floats(rng, 2 * 3 * 50, 4.0);
  std::vector<float> off = x, on = x;
  EXPECT_EQ(query_scale_ref({.q = {off.data(), {2, 3, 50}}}), 1.0 / std::sqrt(50.0));
  EXPECT_EQ(off, x);
  EXPECT_EQ(query_scale_bf16({.q = {on.data(), {2, 3, 50}}}), 1.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(on[i], round_to_bf16(static_cast<float>(x[i] / std::sqrt(50.0)))) << i;
    EXPECT_NEAR(on[i], x[i] / std::sqrt(50.0), std::abs(x[i]) / std::sqrt(50.0) / 256) << i;
  }
}

}  // namespace
}  // namespace plumb
