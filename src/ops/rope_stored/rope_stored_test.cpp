#include "ops/rope_stored/rope_stored.h"

#include <limits>

#include <gtest/gtest.h>

#include "ops/twin.h"

namespace plumb {
namespace {

// Rows rotated with angles looked up and computed; positions the pass does not use are poison.
TEST(RopeStored, RotatesWithTheBitsOfComputedAngles) {
  constexpr std::int64_t kPositions = 4096, kHalf = 5, kDim = 14, kRows = 23;
  const std::vector<double> frequencies{1.0, 0.37, 0.05, 0.003, 0.00007};
  std::vector<double> all(kPositions * kHalf * 2);
  rope_table_ref({.first = 0, .step = 1, .frequencies = frequencies, .table = {all.data(), {kPositions, kHalf, 2}}});
  Rng rng{151};
  struct Case {
    std::int64_t first, step;
  };
  for (const auto& [first, step] : {Case{0, 1}, Case{1, 1}, Case{kPositions - kRows, 1}, Case{0, 4}, Case{1024, 128}}) {
    std::vector<double> stored(all.size(), std::numeric_limits<double>::quiet_NaN());
    for (std::int64_t t = 0; t < kRows; ++t)
      std::copy_n(all.data() + (first + t * step) * kHalf * 2, kHalf * 2,
                  stored.data() + (first + t * step) * kHalf * 2);
    const std::vector<float> x = random_floats(rng, kRows * kDim);
    const auto rotate = [&](void (*side)(const RopeTable&), Guarded<float>& out) {
      Guarded<double> table(kRows * kHalf * 2);
      const View<double, 3> view(table.data(), {kRows, kHalf, 2});
      side({.first = first,
            .step = step,
            .frequencies = frequencies,
            .table = view,
            .stored = {stored.data(), {kPositions, kHalf, 2}}});
      EXPECT_TRUE(table.guards_intact());
      std::copy(x.begin(), x.end(), out.data());
      rope_ref({.x = {out.data(), {kRows, 1, kDim}}, .table = view, .inverse = false});
    };
    Guarded<float> off(kRows * kDim), on(kRows * kDim);
    rotate(Sides<"rope.table">::off, off);
    rotate(Sides<"rope.table">::on, on);
    EXPECT_TWIN("rope.table", on, off.values());
  }
}

}  // namespace
}  // namespace plumb
