#include "ops/linear/linear.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/dot_rows_cpu.h"
#include "ops/twin.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t rows, in, out;
};

// The meaning, one output at a time: f64, rounded once (ref); f32, rounded at each step (cpu).
std::vector<float> chain_by_chain(const std::vector<float>& x, const std::vector<float>& w, const Shape& shape,
                                  Backend backend) {
  std::vector<float> out;
  for (std::int64_t t = 0; t < shape.rows; ++t)
    for (std::int64_t o = 0; o < shape.out; ++o) {
      double wide = 0;
      float narrow = 0;
      for (std::int64_t k = 0; k < shape.in; ++k) {
        const float a = x[static_cast<std::size_t>(t * shape.in + k)];
        const float b = w[static_cast<std::size_t>(k * shape.out + o)];
        wide += static_cast<double>(a) * b;
        narrow = std::fma(a, b, narrow);
      }
      out.push_back(backend == Backend::ref ? static_cast<float>(wide) : narrow);
    }
  return out;
}

class LinearBits : public testing::TestWithParam<Shape> {};

// Every combination of instruction set, rows at a time and outputs at a time must give the bits of `want`.
void expect_bits(Backend backend, const Shape& shape, const std::vector<float>& x, const std::vector<float>& w,
                 const std::vector<float>& want) {
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    for (const std::int64_t tile : {shape.rows, std::int64_t{1}, std::int64_t{3}, std::int64_t{5}})
      for (const std::int64_t outputs : {shape.out, std::int64_t{19}}) {
        Guarded<float> out(shape.rows * shape.out);
        for (std::int64_t first = 0; first < shape.rows; first += tile)
          for (std::int64_t begin = 0; begin < shape.out; begin += outputs) {
            const std::int64_t count = std::min(tile, shape.rows - first);
            on_backend<&linear_ref>(backend)({.x = {x.data() + first * shape.in, {count, shape.in}},
                                              .weight = {w.data(), {shape.in, shape.out}},
                                              .out = {out.data() + first * shape.out, {count, shape.out}},
                                              .outputs = {begin, std::min(begin + outputs, shape.out)}});
          }
        EXPECT_EQ(std::memcmp(out.data(), want.data(), want.size() * sizeof(float)), 0)
            << backend_name(backend) << ", isa " << static_cast<int>(isa) << ", " << tile << " rows and " << outputs
            << " outputs at a time";
        EXPECT_TRUE(out.guards_intact());
      }
  }
  force_isa(before);
}

TEST_P(LinearBits, AreThoseOfOneChainOnEveryInstructionSetAndTile) {
  const Shape shape = GetParam();
  Rng rng{11};
  const std::vector<float> x = random_floats(rng, shape.rows * shape.in);
  const std::vector<float> w = random_floats(rng, shape.in * shape.out);
  for (const Backend backend : {Backend::ref, Backend::cpu})
    expect_bits(backend, shape, x, w, chain_by_chain(x, w, shape, backend));
}

// A chain of n roundings of relative size 2^-25 each, on sums that grow like sqrt(k): nmse about n / 2 * 2^-50.
TEST_P(LinearBits, OfBackendCpuAreWithinBudgetOfTheReference) {
  const Shape shape = GetParam();
  Rng rng{13};
  const std::vector<float> x = random_floats(rng, shape.rows * shape.in);
  const std::vector<float> w = random_floats(rng, shape.in * shape.out);
  Guarded<float> ref(shape.rows * shape.out), cpu(shape.rows * shape.out);
  for (Guarded<float>* out : {&ref, &cpu})
    on_backend<&linear_ref>(out == &cpu ? Backend::cpu : Backend::ref)({.x = {x.data(), {shape.rows, shape.in}},
                                                                        .weight = {w.data(), {shape.in, shape.out}},
                                                                        .out = {out->data(), {shape.rows, shape.out}}});
  EXPECT_CPU_TWIN(1e-15 * static_cast<double>(shape.in + 10), cpu, ref.values());
}
// Every tail of rows (8, 4, 2, 1) and outputs (registers, single ones), and more than one block of k and of outputs.
INSTANTIATE_TEST_SUITE_P(Shapes, LinearBits,
                         testing::Values(Shape{1, 1, 1}, Shape{13, 7, 3}, Shape{8, 64, 64}, Shape{21, 33, 75},
                                         Shape{3, 1100, 24}, Shape{9, 520, 270}, Shape{2, 5, 530}, Shape{15, 9, 48},
                                         Shape{7, 31, 136}));

TEST(LinearCpu, IsATwinOfItsOwn) {
  static_assert(kCpuTwin<&linear_ref> == &linear_cpu && kCpuTwin<&grouped_linear_ref> == &grouped_linear_cpu);
  EXPECT_EQ(on_backend<&linear_ref>(Backend::cpu), &linear_cpu);
  EXPECT_EQ(on_backend<&linear_ref>(Backend::ref), &linear_ref);
}

class LinearOn : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, LinearOn, testing::Values(Backend::ref, Backend::cpu));

TEST_P(LinearOn, NoRowsAreNothingToDo) {
  const std::vector<float> w(16, 1.0f);
  Guarded<float> out(0);
  on_backend<&linear_ref>(GetParam())(
      {.x = {nullptr, {0, 4}}, .weight = {w.data(), {4, 4}}, .out = {out.data(), {0, 4}}});
  EXPECT_TRUE(out.guards_intact());
}

TEST_P(LinearOn, SpecialValuesTravelAsInIeee) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{inf, 1.0f, 0x1p-149f, 0x1p-149f}, w{1.0f, 0.0f, -inf, 1.0f};
  Guarded<float> out(4);
  on_backend<&linear_ref>(GetParam())(
      {.x = {x.data(), {2, 2}}, .weight = {w.data(), {2, 2}}, .out = {out.data(), {2, 2}}});
  EXPECT_TRUE(std::isnan(out.values()[0]));  // inf - inf
  EXPECT_TRUE(std::isnan(out.values()[1]));  // inf * 0
  EXPECT_EQ(out.values()[2], -inf);
  EXPECT_EQ(out.values()[3], 0x1p-149f);
}

TEST_P(LinearOn, EachGroupIsALinearLayerAndOutputsMayBeSplitAnywhere) {
  constexpr std::int64_t kRows = 11, kGroups = 3, kIn = 20, kOut = 17;
  Rng rng{12};
  const std::vector<float> x = random_floats(rng, kRows * kGroups * kIn), w = random_floats(rng, kGroups * kIn * kOut);
  Guarded<float> out(kRows * kGroups * kOut);
  const View<float, 3> view(out.data(), {kRows, kGroups, kOut});
  for (const OutputRange outputs : {OutputRange{0, 5}, OutputRange{5, 38}, OutputRange{38, -1}})
    on_backend<&grouped_linear_ref>(GetParam())({.x = {x.data(), {kRows, kGroups, kIn}},
                                                 .weight = {w.data(), {kGroups, kIn, kOut}},
                                                 .out = view,
                                                 .outputs = outputs});
  for (std::int64_t g = 0; g < kGroups; ++g) {
    std::vector<float> own;
    for (std::int64_t t = 0; t < kRows; ++t)
      own.insert(own.end(), x.begin() + (t * kGroups + g) * kIn, x.begin() + (t * kGroups + g + 1) * kIn);
    const std::vector<float> weight(w.begin() + g * kIn * kOut, w.begin() + (g + 1) * kIn * kOut);
    const std::vector<float> want = chain_by_chain(own, weight, {kRows, kIn, kOut}, GetParam());
    for (std::int64_t t = 0; t < kRows; ++t)
      EXPECT_EQ(std::memcmp(&view(t, g, 0), want.data() + t * kOut, kOut * sizeof(float)), 0) << g << ", " << t;
  }
  EXPECT_TRUE(out.guards_intact());
}

TEST(DotRowsCpu, RowsMayBeGathered) {
  constexpr std::int64_t kRows = 15, kIn = 6, kOut = 20;
  Rng rng{14};
  const std::vector<float> x = random_floats(rng, kRows * kIn), w = random_floats(rng, kIn * kOut);
  const std::vector<float> all = chain_by_chain(x, w, {kRows, kIn, kOut}, Backend::cpu);
  const std::vector<std::int64_t> rows{3, 3, 14, 0, 1, 2, 9, 8, 7, 6, 5, 4, 10};
  const auto count = static_cast<std::int64_t>(rows.size());
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    const Isa before = best_isa();
    force_isa(isa);
    Guarded<float> out(count * kOut);
    dot_rows_cpu(
        {.x = x.data(), .x_stride = kIn, .w = w.data(), .w_stride = kOut, .rows = count, .in = kIn, .out = kOut},
        out.data(), kOut, rows.data());
    force_isa(before);
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(std::memcmp(out.data() + static_cast<std::int64_t>(i) * kOut, all.data() + rows[i] * kOut,
                            kOut * sizeof(float)),
                0);
    EXPECT_TRUE(out.guards_intact());
  }
}

}  // namespace
}  // namespace plumb
