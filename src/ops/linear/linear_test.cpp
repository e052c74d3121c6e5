#include "ops/linear/linear.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/dot_rows.h"
#include "ops/twin.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t rows, in, out;
};

// The meaning, one output at a time.
std::vector<float> chain_by_chain(const std::vector<float>& x, const std::vector<float>& w, const Shape& shape) {
  std::vector<float> out;
  for (std::int64_t t = 0; t < shape.rows; ++t)
    for (std::int64_t o = 0; o < shape.out; ++o) {
      double sum = 0;
      for (std::int64_t k = 0; k < shape.in; ++k)
        sum += static_cast<double>(x[static_cast<std::size_t>(t * shape.in + k)]) *
               w[static_cast<std::size_t>(k * shape.out + o)];
      out.push_back(static_cast<float>(sum));
    }
  return out;
}

class LinearBits : public testing::TestWithParam<Shape> {};

TEST_P(LinearBits, AreThoseOfOneChainOnEveryInstructionSetAndRowTile) {
  const Shape shape = GetParam();
  Rng rng{11};
  const std::vector<float> x = random_floats(rng, shape.rows * shape.in);
  const std::vector<float> w = random_floats(rng, shape.in * shape.out);
  const std::vector<float> want = chain_by_chain(x, w, shape);
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    for (const std::int64_t tile : {shape.rows, std::int64_t{1}, std::int64_t{3}, std::int64_t{5}}) {
      Guarded<float> out(shape.rows * shape.out);
      for (std::int64_t first = 0; first < shape.rows; first += tile) {
        const std::int64_t count = std::min(tile, shape.rows - first);
        linear_ref({.x = {x.data() + first * shape.in, {count, shape.in}},
                    .weight = {w.data(), {shape.in, shape.out}},
                    .out = {out.data() + first * shape.out, {count, shape.out}}});
      }
      EXPECT_EQ(std::memcmp(out.data(), want.data(), want.size() * sizeof(float)), 0)
          << "isa " << static_cast<int>(isa) << ", " << tile << " rows at a time";
      EXPECT_TRUE(out.guards_intact());
    }
  }
  force_isa(before);
}
// Every tail of rows (8, 4, 1) and outputs (registers, single ones), and more than one block of k and of outputs.
INSTANTIATE_TEST_SUITE_P(Shapes, LinearBits,
                         testing::Values(Shape{1, 1, 1}, Shape{13, 7, 3}, Shape{8, 64, 64}, Shape{21, 33, 75},
                                         Shape{3, 1100, 24}, Shape{9, 520, 270}, Shape{0, 4, 4}, Shape{2, 5, 530}));

TEST(Linear, SpecialValuesTravelAsInIeee) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{inf, 1.0f, 0x1p-149f, 0x1p-149f}, w{1.0f, 0.0f, -inf, 1.0f};
  Guarded<float> out(4);
  linear_ref({.x = {x.data(), {2, 2}}, .weight = {w.data(), {2, 2}}, .out = {out.data(), {2, 2}}});
  EXPECT_TRUE(std::isnan(out.values()[0]));  // inf - inf
  EXPECT_TRUE(std::isnan(out.values()[1]));  // inf * 0
  EXPECT_EQ(out.values()[2], -inf);
  EXPECT_EQ(out.values()[3], 0x1p-149f);
}

TEST(GroupedLinear, IsALinearLayerForEachGroup) {
  constexpr std::int64_t kRows = 11, kGroups = 3, kIn = 20, kOut = 17;
  Rng rng{12};
  const std::vector<float> x = random_floats(rng, kRows * kGroups * kIn), w = random_floats(rng, kGroups * kIn * kOut);
  Guarded<float> out(kRows * kGroups * kOut);
  const View<float, 3> view(out.data(), {kRows, kGroups, kOut});
  grouped_linear_ref({.x = {x.data(), {kRows, kGroups, kIn}}, .weight = {w.data(), {kGroups, kIn, kOut}}, .out = view});
  for (std::int64_t g = 0; g < kGroups; ++g) {
    std::vector<float> own;
    for (std::int64_t t = 0; t < kRows; ++t)
      own.insert(own.end(), x.begin() + (t * kGroups + g) * kIn, x.begin() + (t * kGroups + g + 1) * kIn);
    const std::vector<float> weight(w.begin() + g * kIn * kOut, w.begin() + (g + 1) * kIn * kOut);
    const std::vector<float> want = chain_by_chain(own, weight, {kRows, kIn, kOut});
    for (std::int64_t t = 0; t < kRows; ++t)
      EXPECT_EQ(std::memcmp(&view(t, g, 0), want.data() + t * kOut, kOut * sizeof(float)), 0) << g << ", " << t;
  }
  EXPECT_TRUE(out.guards_intact());
}

}  // namespace
}  // namespace plumb
