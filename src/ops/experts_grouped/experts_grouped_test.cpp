#include "ops/experts_grouped/experts_grouped.h"

#include <tuple>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/experts/random_experts.h"

namespace plumb {
namespace {

class ExpertsGroupedTwin : public testing::TestWithParam<std::tuple<Backend, ExpertsShape>> {};

TEST_P(ExpertsGroupedTwin, HasTheBitsOfSmallTilesOnAnyThreadsAndInstructionSet) {
  const auto& [backend, shape] = GetParam();
  const RandomExperts world(shape, 191);
  const std::int64_t size = shape.rows * shape.dim;
  ExpertsScratch scratch;
  Guarded<float> off(size);
  off_side<"moe.grouped">(backend, world.args(off.data(), &scratch));
  EXPECT_TRUE(off.guards_intact());
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    for (const int threads : {0, 1, 2, 5}) {
      ThreadPool pool(std::max(threads, 1));
      Guarded<float> on(size);
      on_side<"moe.grouped">(backend, world.args(on.data(), &scratch, threads == 0 ? nullptr : &pool));
      EXPECT_TWIN("moe.grouped", on, off.values()) << static_cast<int>(isa) << ", " << threads << " threads";
    }
  }
  force_isa(before);
}
// One row, fewer rows than a tile, several tiles; more experts than rows and fewer.
INSTANTIATE_TEST_SUITE_P(Shapes, ExpertsGroupedTwin,
                         testing::Combine(testing::Values(Backend::ref, Backend::cpu),
                                          testing::Values(ExpertsShape{1, 20, 9, 4, 2}, ExpertsShape{13, 33, 17, 40, 6},
                                                          ExpertsShape{150, 75, 41, 5, 2},
                                                          ExpertsShape{0, 8, 8, 3, 1})));

}  // namespace
}  // namespace plumb
