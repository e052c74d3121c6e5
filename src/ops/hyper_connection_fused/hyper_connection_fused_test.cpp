#include "ops/hyper_connection_fused/hyper_connection_fused.h"

#include <tuple>

#include <gtest/gtest.h>

#include "ops/twin.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t rows, streams, dim;
};

struct World {
  World(const Shape& s, std::uint64_t seed) : shape(s) {
    Rng rng{seed};
    const std::int64_t mixes = s.streams * (2 + s.streams), in = s.streams * s.dim;
    streams = random_floats(rng, s.rows * in);
    fn = random_floats(rng, in * mixes, 1.0 / std::sqrt(static_cast<double>(in)));
    for (const float value : fn) fn_bf16.push_back(round_to_bf16(value));
    base = random_floats(rng, mixes, 0.5);
    scale = random_floats(rng, 3);
    y = random_floats(rng, s.rows * s.dim);
  }
  struct Outputs {
    explicit Outputs(const Shape& s)
        : post(s.rows * s.streams),
          comb(s.rows * s.streams * s.streams),
          collapsed(s.rows * s.dim),
          streams(s.rows * s.streams * s.dim) {}
    Guarded<float> post, comb, collapsed, streams;
    std::vector<Guarded<float>*> all() { return {&post, &comb, &collapsed, &streams}; }
  };
  // A whole site with both halves under one side of mhc.fused, `tile` rows at a time.
  void run(Backend backend, bool fused, void (*product)(const HcMix&), std::int64_t tile, Outputs& out) const {
    const auto [rows, n, d] = shape;
    const std::int64_t mixes = n * (2 + n);
    std::copy(streams.begin(), streams.end(), out.streams.data());
    const auto step = [&](const HcStep& half) {
      fused ? on_side<"mhc.fused">(backend, half) : off_side<"mhc.fused">(backend, half);
    };
    for (std::int64_t t = 0; t < rows; t += tile) {
      const std::int64_t count = std::min(tile, rows - t);
      const View<float, 2> post(out.post.data() + t * n, {count, n});
      const View<float, 3> comb(out.comb.data() + t * n * n, {count, n, n});
      const HcPre pre{.streams = {streams.data() + t * n * d, {count, n, d}},
                      .fn = {fn.data(), {n * d, mixes}},
                      .base = {base.data(), {mixes}},
                      .scale = {scale.data(), {3}},
                      .eps = 1e-6,
                      .hc_eps = 1e-6,
                      .iters = 20,
                      .post = post,
                      .comb = comb,
                      .collapsed = {out.collapsed.data() + t * d, {count, d}},
                      .fn_bf16 = {fn_bf16.data(), {n * d, mixes}},
                      .product = product};
      step({.pre = &pre});
      const HcPost feed_back{.y = {y.data() + t * d, {count, d}},
                             .post = post,
                             .comb = comb,
                             .streams = {out.streams.data() + t * n * d, {count, n, d}}};
      step({.post = &feed_back});
    }
  }
  std::vector<double> mix(void (*product)(const HcMix&), std::int64_t tile, bool bf16_only) const {
    const auto [rows, n, d] = shape;
    const std::int64_t mixes = n * (2 + n);
    std::vector<double> out(static_cast<std::size_t>(rows * mixes));
    // The side that works on bf16 must not read fn.
    const std::vector<float> poison(fn.size(), std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t t = 0; t < rows; t += tile) {
      const std::int64_t count = std::min(tile, rows - t);
      product({.streams = {streams.data() + t * n * d, {count, n, d}},
               .fn = {bf16_only ? poison.data() : fn.data(), {n * d, mixes}},
               .fn_bf16 = {fn_bf16.data(), {n * d, mixes}},
               .mix = {out.data() + t * mixes, {count, mixes}}});
    }
    return out;
  }
  Shape shape;
  std::vector<float> streams, fn, fn_bf16, base, scale, y;
};

class HyperConnectionTwin : public testing::TestWithParam<std::tuple<Backend, Shape>> {};

TEST_P(HyperConnectionTwin, FusedHasTheBitsOfSeparateStepsWithEitherProduct) {
  const auto& [backend, shape] = GetParam();
  const World world(shape, 221);
  for (const auto product : {static_cast<void (*)(const HcMix&)>(nullptr), &hc_mix_bf16}) {
    World::Outputs off(shape);
    world.run(backend, false, product, std::max<std::int64_t>(shape.rows, 1), off);
    for_each_isa([&, b = backend, s = shape](Isa isa) {
      for (const bool fused : {false, true})
        for (const std::int64_t tile : {std::int64_t{1}, std::int64_t{7}, std::max<std::int64_t>(s.rows, 1)}) {
          World::Outputs on(s);
          world.run(b, fused, product, tile, on);
          for (std::size_t i = 0; i < 4; ++i)
            EXPECT_TWIN("mhc.fused", *on.all()[i], off.all()[i]->values())
                << "output " << i << ", isa " << static_cast<int>(isa) << ", " << tile << " rows at a time";
        }
    });
  }
}

TEST_P(HyperConnectionTwin, Bf16MixIsWithinBudgetOfFullPrecision) {
  const auto& [backend, shape] = GetParam();
  const World world(shape, 222);
  World::Outputs off(shape), on(shape);
  world.run(backend, true, nullptr, std::max<std::int64_t>(shape.rows, 1), off);
  world.run(backend, true, &hc_mix_bf16, std::max<std::int64_t>(shape.rows, 1), on);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TWIN("mhc.bf16_mix", *on.all()[i], off.all()[i]->values());
    RecordProperty("nmse_" + std::to_string(i),
                   testing::PrintToString(nmse(on.all()[i]->values(), off.all()[i]->values())));
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, HyperConnectionTwin,
                         testing::Combine(testing::Values(Backend::ref, Backend::cpu),
                                          testing::Values(Shape{37, 4, 256}, Shape{11, 4, 10}, Shape{9, 2, 33},
                                                          Shape{18, 3, 40}, Shape{2, 8, 20}, Shape{0, 4, 8})));

// bf16 products are exact and f32 sums round: the f64 sum of rounded inputs, to f32 accuracy.
TEST(HcMixBf16, IsTheProductOfRoundedInputs) {
  World world({21, 4, 300}, 223);
  const std::vector<double> got = world.mix(&hc_mix_bf16, 21, true);
  for_each_isa([&](Isa isa) {
    for (const std::int64_t tile : {1, 4, 16})
      EXPECT_EQ(world.mix(&hc_mix_bf16, tile, true), got) << static_cast<int>(isa);
  });
  for (float& value : world.streams) value = round_to_bf16(value);
  world.fn = world.fn_bf16;
  const std::vector<double> want = world.mix(&hc_mix_ref, 21, false);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 3e-6) << i;
}

}  // namespace
}  // namespace plumb
