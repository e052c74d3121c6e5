#include "base/rng.h"

#include <gtest/gtest.h>

namespace plumb {
namespace {

TEST(Rng, BelowIsUniformEnoughAndInRange) {
  Rng rng{7};
  int counts[10] = {};
  for (int i = 0; i < 100000; ++i) ++counts[rng.below(10)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(Rng, SeedsOfDifferentPurposesDiffer) {
  EXPECT_NE(derive_seed(1, "plant"), derive_seed(1, "probe"));
  EXPECT_NE(derive_seed(1, "plant"), derive_seed(2, "plant"));
  EXPECT_EQ(derive_seed(1, "plant"), derive_seed(1, "plant"));
}

}  // namespace
}  // namespace plumb
