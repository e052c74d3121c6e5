#include "ops/experts/experts.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/twin.h"

namespace plumb {
namespace {

// More rows of one expert than a task takes, and more columns than one task has.
constexpr std::int64_t kRows = 85, kDim = 75, kInner = 41, kExperts = 5, kChosen = 2;
constexpr double kLimit = 0.75;  // backend cpu rounds the limit to f32

struct World {
  World() {
    Rng rng{111};
    x = random_floats(rng, kRows * kDim);
    for (std::int64_t e = 0; e <= kExperts; ++e) {
      gate.push_back(random_floats(rng, kDim * kInner, 0.2));
      up.push_back(random_floats(rng, kDim * kInner, 0.2));
      down.push_back(random_floats(rng, kInner * kDim, 0.2));
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
  std::vector<float> run(Backend backend, std::int64_t tile, Executor* executor = nullptr) {
    Guarded<float> out(kRows * kDim);
    run_into(out, backend, tile, executor);
    EXPECT_TRUE(out.guards_intact());
    return {out.values().begin(), out.values().end()};
  }
  void run_into(Guarded<float>& out, Backend backend, std::int64_t tile, Executor* executor) {
    for (std::int64_t first = 0; first < kRows; first += tile) {
      const std::int64_t count = std::min(tile, kRows - first);
      on_backend<&experts_ref>(backend)({.x = {x.data() + first * kDim, {count, kDim}},
                                         .experts = {experts.data() + first * kChosen, {count, kChosen}},
                                         .weights = {weights.data() + first * kChosen, {count, kChosen}},
                                         .routed = mlps,
                                         .shared = shared,
                                         .limit = kLimit,
                                         .output_scale = 1.0,
                                         .out = {out.data() + first * kDim, {count, kDim}},
                                         .scratch = &scratch,
                                         .executor = executor});
    }
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

class ExpertsOn : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, ExpertsOn, testing::Values(Backend::ref, Backend::cpu));

TEST_P(ExpertsOn, AreTheFormulaWithClampsOnRoutedAndShared) {
  World world;
  const std::vector<float> out = world.run(GetParam(), kRows);
  for (std::int64_t t = 0; t < kRows; ++t) {
    std::vector<double> want = mlp(world.shared, world.x.data() + t * kDim);
    for (std::int64_t i = 0; i < kChosen; ++i) {
      const std::vector<double> one = mlp(world.mlps[world.experts[t * kChosen + i]], world.x.data() + t * kDim);
      for (std::int64_t c = 0; c < kDim; ++c) want[c] += world.weights[t * kChosen + i] * one[c];
    }
    for (std::int64_t c = 0; c < kDim; ++c) EXPECT_NEAR(out[t * kDim + c], want[c], 3e-6) << t << ' ' << c;
  }
}

TEST_P(ExpertsOn, BitsDependOnNeitherRowTileNorThreadsNorOrderOfChoiceNorInstructionSet) {
  World world;
  const std::vector<float> out = world.run(GetParam(), kRows);
  for (const std::int64_t tile : {1, 2, 5, 8, 33}) EXPECT_EQ(world.run(GetParam(), tile), out) << tile;
  for (const int threads : {1, 2, 3, 9}) {
    ThreadPool pool(threads);
    for (const std::int64_t tile : {std::int64_t{1}, std::int64_t{7}, kRows})
      EXPECT_EQ(world.run(GetParam(), tile, &pool), out) << threads << " threads, " << tile << " rows";
  }
  for (std::size_t t = 0; t < kRows; ++t) {
    std::swap(world.experts[2 * t], world.experts[2 * t + 1]);
    std::swap(world.weights[2 * t], world.weights[2 * t + 1]);
  }
  EXPECT_EQ(world.run(GetParam(), kRows), out);
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    EXPECT_EQ(world.run(GetParam(), kRows), out) << static_cast<int>(isa);
  }
  force_isa(before);
}

// Two products of 75 and 41 steps, an exponential and three more roundings.
TEST(ExpertsCpu, IsWithinBudgetOfTheReference) {
  static_assert(kCpuTwin<&experts_ref> == &experts_cpu);
  World world;
  Guarded<float> ref(kRows * kDim), cpu(kRows * kDim);
  world.run_into(ref, Backend::ref, kRows, nullptr);
  world.run_into(cpu, Backend::cpu, kRows, nullptr);
  EXPECT_CPU_TWIN(3e-13, cpu, ref.values());
}

TEST(GatedProductCpu, ClampsAsTheReferenceAndHasTheSameBitsOnEveryInstructionSet) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> gates{-inf, -100.0f, -88.8f, -1.0f, -0.0f, 0.5f, 9.99f, 10.0f, 11.0f, inf, 1e-30f};
  const std::vector<float> ups{1.0f, -12.0f, 2.0f, 10.5f, -10.0f, 3.0f, -inf, inf, 0.1f, 1.0f, -0.3f};
  std::vector<float> ref = gates;
  gated_product(ref, ups, 10.0);
  const Isa before = best_isa();
  std::vector<float> first;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    std::vector<float> got = gates;
    gated_product_cpu(got, ups, 10.0f);
    if (first.empty()) first = got;
    EXPECT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0) << static_cast<int>(isa);
    for (std::size_t i = 1; i < got.size(); ++i)  // silu(-inf) is -inf / inf
      EXPECT_NEAR(got[i], ref[i], 3e-7f * std::abs(ref[i]) + 1e-36f) << i;
    EXPECT_TRUE(std::isnan(got[0]) && std::isnan(ref[0]));
  }
  force_isa(before);
}

}  // namespace
}  // namespace plumb
