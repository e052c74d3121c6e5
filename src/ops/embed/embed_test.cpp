#include "ops/embed/embed.h"

#include <gtest/gtest.h>

#include "ops/twin.h"

namespace plumb {
namespace {

TEST(Embed, CopiesTheRowsOfTheTokens) {
  const std::vector<float> table{0, 1, 10, 11, 20, 21};
  const std::vector<std::int32_t> tokens{2, 0, 2};
  Guarded<float> out(6);
  embed_ref({.tokens = tokens, .table = {table.data(), {3, 2}}, .out = {out.data(), {3, 2}}});
  EXPECT_EQ(std::vector<float>(out.values().begin(), out.values().end()), (std::vector<float>{20, 21, 0, 1, 20, 21}));
  EXPECT_TRUE(out.guards_intact());
}

TEST(EmbedDeathTest, AnIdOutsideTheTableStops) {
  const std::vector<float> table(6);
  const std::vector<std::int32_t> tokens{3};
  std::vector<float> out(2);
  EXPECT_DEATH(embed_ref({.tokens = tokens, .table = {table.data(), {3, 2}}, .out = {out.data(), {1, 2}}}),
               "invariant");
}

}  // namespace
}  // namespace plumb
