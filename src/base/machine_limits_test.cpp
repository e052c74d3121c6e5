#include "base/machine_limits.h"

#include <gtest/gtest.h>

#include "base/isa.h"

namespace plumb {
namespace {

// Bounds no machine of today misses, however busy; and an instruction set that does not know the operation is slower.
TEST(MachineLimits, AreOfTheRightSize) {
  const double operations = measure_multiply_adds(1), cache = measure_reads(1, 16 << 10),
               memory = measure_reads(1, 64 << 20);
  EXPECT_GT(operations, 1e7);
  EXPECT_LT(operations, 1e13);
  EXPECT_GT(cache, 1e7);
  EXPECT_LT(cache, 1e13);
  EXPECT_GT(memory, 1e6);
  EXPECT_LT(memory, 4 * cache);
  EXPECT_GT(measure_reads(2, 1), 0);
}

}  // namespace
}  // namespace plumb
