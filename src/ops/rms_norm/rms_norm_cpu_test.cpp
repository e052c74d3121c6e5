#include <cstring>

#include <gtest/gtest.h>

#include "ops/rms_norm/rms_norm.h"
#include "ops/twin.h"

namespace plumb {
namespace {

static_assert(kCpuTwin<&rms_norm_ref> == &rms_norm_cpu);

struct Case {
  std::int64_t rows, width;
  bool weighted;
};

class RmsNormCpu : public testing::TestWithParam<Case> {};

TEST_P(RmsNormCpu, IsWithinBudgetAndItsBitsDependOnNeitherRowsNorInstructionSet) {
  const auto [rows, width, weighted] = GetParam();
  Rng rng{22};
  const std::vector<float> x = random_floats(rng, rows * width, 3.0), weight = random_floats(rng, width);
  const auto run = [&](void (*side)(const RmsNorm&), std::int64_t tile, Guarded<float>& out) {
    for (std::int64_t t = 0; t < rows; t += tile)
      side({.x = {x.data() + t * width, {std::min(tile, rows - t), width}},
            .weight = weighted ? View<const float, 1>(weight.data(), {width}) : View<const float, 1>(),
            .eps = 1e-6,
            .out = {out.data() + t * width, {std::min(tile, rows - t), width}}});
  };
  Guarded<float> ref(rows * width), cpu(rows * width);
  run(&rms_norm_ref, rows, ref);
  run(&rms_norm_cpu, rows, cpu);
  // Two or three roundings an element and a sum in sixteen chains: half an ulp each, squared.
  EXPECT_TRUE(nmse(cpu.values(), ref.values()) < 2e-14) << nmse(cpu.values(), ref.values());
  for_each_isa([&](Isa isa) {
    for (const std::int64_t tile : {std::int64_t{1}, std::int64_t{3}, rows}) {
      Guarded<float> again(rows * width);
      run(&rms_norm_cpu, tile, again);
      EXPECT_EQ(std::memcmp(again.data(), cpu.data(), cpu.values().size_bytes()), 0) << static_cast<int>(isa);
      EXPECT_TRUE(again.guards_intact());
    }
  });
}
// Whole lanes, a rest alone, both; with and without weights.
INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormCpu,
                         testing::Values(Case{7, 256, true}, Case{5, 128, false}, Case{4, 9, true}, Case{3, 45, false},
                                         Case{1, 1, true}, Case{3, 4096, true}));

TEST(RmsNormCpu, WorksInPlaceAndZerosStayZeros) {
  std::vector<float> x(20, 0.0f);
  rms_norm_cpu({.x = {x.data(), {1, 20}}, .weight = {}, .eps = 1e-6, .out = {x.data(), {1, 20}}});
  for (const float value : x) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace plumb
