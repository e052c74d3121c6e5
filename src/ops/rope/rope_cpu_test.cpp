#include <cstring>

#include <gtest/gtest.h>

#include "ops/rope/rope.h"
#include "ops/twin.h"

namespace plumb {
namespace {

static_assert(kCpuTwin<&rope_ref> == &rope_cpu);

struct Case {
  std::int64_t rows, heads, dim, pairs;
  bool inverse;
};

class RopeCpu : public testing::TestWithParam<Case> {};

TEST_P(RopeCpu, IsWithinBudgetAndItsBitsDependOnNeitherRowsNorInstructionSet) {
  const auto [rows, heads, dim, pairs, inverse] = GetParam();
  Rng rng{32};
  const std::int64_t row = heads * dim;
  const std::vector<float> x = random_floats(rng, rows * row);
  std::vector<double> frequencies, table(static_cast<std::size_t>(rows * pairs * 2));
  for (std::int64_t i = 0; i < pairs; ++i) frequencies.push_back(std::pow(1e4, -static_cast<double>(i) / 7.0));
  rope_table_ref({.first = 50000, .step = 1, .frequencies = frequencies, .table = {table.data(), {rows, pairs, 2}}});
  const auto run = [&](void (*side)(const Rope&), std::int64_t tile, Guarded<float>& out) {
    std::copy(x.begin(), x.end(), out.data());
    for (std::int64_t t = 0; t < rows; t += tile) {
      const std::int64_t count = std::min(tile, rows - t);
      side({.x = {out.data() + t * row, {count, heads, dim}},
            .table = {table.data() + t * pairs * 2, {count, pairs, 2}},
            .inverse = inverse});
    }
  };
  Guarded<float> ref(rows * row), cpu(rows * row);
  run(&rope_ref, rows, ref);
  run(&rope_cpu, rows, cpu);
  // Four roundings: cosine, sine, one product, the sum.
  EXPECT_CPU_TWIN(1e-14, cpu, ref.values());
  for_each_isa([&](Isa isa) {
    for (const std::int64_t tile : {std::int64_t{1}, std::int64_t{2}, rows}) {
      Guarded<float> again(rows * row);
      run(&rope_cpu, tile, again);
      EXPECT_EQ(std::memcmp(again.data(), cpu.data(), cpu.values().size_bytes()), 0) << static_cast<int>(isa);
      EXPECT_TRUE(again.guards_intact());
    }
  });
}
// All channels and some of them; whole lanes, a rest, one pair; both directions.
INSTANTIATE_TEST_SUITE_P(Shapes, RopeCpu,
                         testing::Values(Case{9, 4, 128, 16, false}, Case{5, 1, 128, 16, true},
                                         Case{3, 2, 14, 5, false}, Case{2, 3, 34, 17, true}, Case{1, 1, 2, 1, false}));

}  // namespace
}  // namespace plumb
