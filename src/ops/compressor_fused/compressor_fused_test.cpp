#include "ops/compressor_fused/compressor_fused.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/rope/rope.h"
#include "ops/twin.h"

namespace plumb {
namespace {

constexpr float kAbsent = -std::numeric_limits<float>::infinity();
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int64_t rate, width, first, tokens;
  bool overlapping;
};
class CompressorTwin : public testing::TestWithParam<Shape> {};

TEST_P(CompressorTwin, FusedRowsHaveTheBitsOfStoredWeights) {
  const Shape s = GetParam();
  const std::int64_t items = s.overlapping ? 2 * s.width : s.width, open = s.first % s.rate;
  Rng rng{161};
  const std::vector<float> k = random_floats(rng, s.tokens * items), gates = random_floats(rng, s.tokens * items, 3.0);
  const std::vector<float> norm = random_floats(rng, s.width);
  const std::vector<double> frequencies{1.0, 0.1};
  // Slots of positions that are not there yet are poison; a previous window exists from the second one on.
  std::vector<float> open_k(static_cast<std::size_t>(s.rate * items), kPoison), open_s = open_k;
  std::vector<float> previous_k(static_cast<std::size_t>(s.rate * s.width), 0.0f);
  std::vector<float> previous_s(previous_k.size(), kAbsent);
  for (std::int64_t i = 0; i < open * items; ++i)
    open_k[static_cast<std::size_t>(i)] = static_cast<float>(rng.normal()),
    open_s[static_cast<std::size_t>(i)] = static_cast<float>(rng.normal());
  if (s.first >= s.rate)
    for (std::size_t i = 0; i < previous_k.size(); ++i)
      previous_k[i] = static_cast<float>(rng.normal()), previous_s[i] = static_cast<float>(rng.normal());
  const auto previous = [&](std::vector<float>& data) {
    return View<float, 2>(s.overlapping ? data.data() : nullptr, {s.rate, s.width});
  };
  const std::int64_t first_window = s.first / s.rate, windows = (s.first + s.tokens) / s.rate - first_window;
  std::vector<double> angles(static_cast<std::size_t>(windows * 4));
  const View<double, 3> table(angles.data(), {windows, 2, 2});
  rope_table_ref({.first = first_window * s.rate, .step = s.rate, .frequencies = frequencies, .table = table});
  const auto run = [&](void (*side)(const Compressor&), Guarded<float>& out) {
    side({.k = {k.data(), {s.tokens, items}},
          .s = {gates.data(), {s.tokens, items}},
          .state = {{open_k.data(), {s.rate, items}},
                    {open_s.data(), {s.rate, items}},
                    previous(previous_k),
                    previous(previous_s)},
          .first_position = s.first,
          .rate = s.rate,
          .norm = {norm.data(), {s.width}},
          .eps = 1e-6,
          .table = table,
          .first_window = first_window,
          .rows = {out.data(), {windows, s.width}}});
  };
  for (const Backend backend : {Backend::ref, Backend::cpu}) {
    Guarded<float> off(windows * s.width);
    run(on_backend<Sides<"compressor.fused">::off>(backend), off);
    for_each_isa([&](Isa isa) {
      Guarded<float> on(windows * s.width);
      run(on_backend<Sides<"compressor.fused">::on>(backend), on);
      EXPECT_TWIN("compressor.fused", on, off.values()) << backend_name(backend) << ' ' << static_cast<int>(isa);
    });
  }
  // Exponentials of gates and two chains over the items of a window, then a norm.
  Guarded<float> ref(windows * s.width), cpu(windows * s.width);
  run(&compressor_ref, ref);
  run(&compressor_cpu, cpu);
  EXPECT_LE(nmse(cpu.values(), ref.values()), 1e-15 * static_cast<double>(s.rate * (s.overlapping ? 2 : 1) + 40));
}
// Both kinds, from a fresh and from a continued sequence, widths that leave channels beside the blocks of 8 and 16.
INSTANTIATE_TEST_SUITE_P(Shapes, CompressorTwin,
                         testing::Values(Shape{4, 20, 0, 23, true}, Shape{4, 64, 1022, 9, true},
                                         Shape{8, 33, 13, 40, true}, Shape{128, 19, 100, 300, false},
                                         Shape{128, 128, 0, 128, false}, Shape{16, 7, 5, 50, false},
                                         Shape{4, 8, 0, 3, true}));

}  // namespace
}  // namespace plumb
