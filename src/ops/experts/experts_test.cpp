#include "ops/experts/experts.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/twin.h"

namespace plumb {
namespace {

constexpr std::int64_t kRows = 21, kDim = 12, kInner = 9, kExperts = 5, kChosen = 2;
constexpr double kLimit = 0.8;

struct World {
  World() {
    Rng rng{111};
    x = random_floats(rng, kRows * kDim);
    for (std::int64_t e = 0; e <= kExperts; ++e) {
      gate.push_back(random_floats(rng, kDim * kInner));
      up.push_back(random_floats(rng, kDim * kInner));
      down.push_back(random_floats(rng, kInner * kDim));
    }
    for (std::size_t e = 0; e <= kExperts; ++e)
      mlps.push_back(
          {{gate[e].data(), {kDim, kInner}}, {up[e].data(), {kDim, kInner}}, {down[e].data(), {kInner, kDim}}});
    shared = mlps.back();
    mlps.pop_back();
    for (std::int64_t t = 0; t < kRows; ++t) {
      const auto first = static_cast<std::int32_t>(rng.below(kExperts));
      const auto second =
          static_cast<std::int32_t>((first + 1 + static_cast<std::int64_t>(rng.below(kExperts - 1))) % kExperts);
      experts.push_back(first), experts.push_back(second);
    }
    weights = random_floats(rng, kRows * kChosen);
  }
  std::vector<float> run(std::int64_t tile) {
    Guarded<float> out(kRows * kDim);
    for (std::int64_t first = 0; first < kRows; first += tile) {
      const std::int64_t count = std::min(tile, kRows - first);
      experts_ref({.x = {x.data() + first * kDim, {count, kDim}},
                   .experts = {experts.data() + first * kChosen, {count, kChosen}},
                   .weights = {weights.data() + first * kChosen, {count, kChosen}},
                   .routed = mlps,
                   .shared = shared,
                   .limit = kLimit,
                   .out = {out.data() + first * kDim, {count, kDim}},
                   .scratch = &scratch});
    }
    EXPECT_TRUE(out.guards_intact());
    return {out.values().begin(), out.values().end()};
  }
  std::vector<float> x, weights;
  std::vector<std::vector<float>> gate, up, down;
  std::vector<GatedMlp> mlps;
  GatedMlp shared;
  std::vector<std::int32_t> experts;
  ExpertsScratch scratch;
};

std::vector<double> mlp(const GatedMlp& weights, const float* x) {
  std::vector<double> out(kDim, 0.0);
  for (std::int64_t i = 0; i < kInner; ++i) {
    double g = 0, u = 0;
    for (std::int64_t k = 0; k < kDim; ++k) g += x[k] * weights.gate(k, i), u += x[k] * weights.up(k, i);
    g = std::min(g, kLimit);
    u = std::clamp(u, -kLimit, kLimit);
    for (std::int64_t c = 0; c < kDim; ++c) out[c] += g / (1 + std::exp(-g)) * u * weights.down(i, c);
  }
  return out;
}

TEST(Experts, AreTheFormulaWithClampsOnRoutedAndShared) {
  World world;
  const std::vector<float> out = world.run(kRows);
  for (std::int64_t t = 0; t < kRows; ++t) {
    std::vector<double> want = mlp(world.shared, world.x.data() + t * kDim);
    for (std::int64_t i = 0; i < kChosen; ++i) {
      const std::vector<double> one = mlp(world.mlps[world.experts[t * kChosen + i]], world.x.data() + t * kDim);
      for (std::int64_t c = 0; c < kDim; ++c) want[c] += world.weights[t * kChosen + i] * one[c];
    }
    for (std::int64_t c = 0; c < kDim; ++c) EXPECT_NEAR(out[t * kDim + c], want[c], 3e-6) << t << ' ' << c;
  }
}

TEST(Experts, BitsDependOnNeitherRowTileNorOrderOfChoiceNorInstructionSet) {
  World world;
  const std::vector<float> out = world.run(kRows);
  for (const std::int64_t tile : {1, 2, 5, 8}) EXPECT_EQ(world.run(tile), out) << tile;
  for (std::size_t t = 0; t < kRows; ++t) {
    std::swap(world.experts[2 * t], world.experts[2 * t + 1]);
    std::swap(world.weights[2 * t], world.weights[2 * t + 1]);
  }
  EXPECT_EQ(world.run(kRows), out);
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    EXPECT_EQ(world.run(kRows), out) << static_cast<int>(isa);
  }
  force_isa(before);
}

}  // namespace
}  // namespace plumb
