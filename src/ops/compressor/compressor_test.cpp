#include "ops/compressor/compressor.h"

#include <cmath>
#include <limits>
#include <tuple>

#include <gtest/gtest.h>

#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/twin.h"

namespace plumb {
namespace {

constexpr float kAbsent = -std::numeric_limits<float>::infinity();
constexpr double kFrequencies[] = {1.0, 0.1};

struct Case {
  std::int64_t rate, width, tokens;
  bool overlapping;
  std::int64_t item_width() const { return overlapping ? 2 * width : width; }
};

// What a sequence carries, fresh.
struct State {
  explicit State(const Case& c)
      : open_k(c.rate * c.item_width(), 0.0f),
        open_s(c.rate * c.item_width(), kAbsent),
        previous_k(c.rate * c.width, 0.0f),
        previous_s(c.rate * c.width, kAbsent),
        test(c) {}
  CompressorState view() {
    const auto previous = [&](std::vector<float>& data) {
      return View<float, 2>(test.overlapping ? data.data() : nullptr, {test.rate, test.width});
    };
    return {{open_k.data(), {test.rate, test.item_width()}},
            {open_s.data(), {test.rate, test.item_width()}},
            previous(previous_k),
            previous(previous_s)};
  }
  bool operator==(const State& other) const {
    return open_k == other.open_k && open_s == other.open_s && previous_k == other.previous_k &&
           previous_s == other.previous_s;
  }
  std::vector<float> open_k, open_s, previous_k, previous_s;
  Case test;
};

// Rows of all windows, tokens cut into chunks of `chunk`; the state it ends with in `state`.
std::vector<float> stream(const Case& c, std::vector<float>& k, std::vector<float>& s, const std::vector<float>& norm,
                          std::int64_t chunk, State& state, Backend backend) {
  std::vector<float> rows;
  for (std::int64_t first = 0; first < c.tokens; first += chunk) {
    const std::int64_t count = std::min(chunk, c.tokens - first), windows = (first + count) / c.rate - first / c.rate;
    const View<const float, 2> ck(k.data() + first * c.item_width(), {count, c.item_width()});
    const View<const float, 2> cs(s.data() + first * c.item_width(), {count, c.item_width()});
    Guarded<float> out(windows * c.width);
    std::vector<double> angles(static_cast<std::size_t>(windows * 4));
    const View<double, 3> table(angles.data(), {windows, 2, 2});
    rope_table_ref({.first = first / c.rate * c.rate, .step = c.rate, .frequencies = kFrequencies, .table = table});
    on_backend<&compressor_ref>(backend)({.k = ck,
                                          .s = cs,
                                          .state = state.view(),
                                          .first_position = first,
                                          .rate = c.rate,
                                          .norm = {norm.data(), {c.width}},
                                          .eps = 1e-6,
                                          .table = table,
                                          .first_window = first / c.rate,
                                          .rows = {out.data(), {windows, c.width}}});
    compressor_carry_ref({.k = ck, .s = cs, .state = state.view(), .first_position = first, .rate = c.rate});
    EXPECT_TRUE(out.guards_intact());
    rows.insert(rows.end(), out.values().begin(), out.values().end());
  }
  return rows;
}

static_assert(kCpuTwin<&compressor_ref> == &compressor_cpu);

class CompressorChunks : public testing::TestWithParam<std::tuple<Case, Backend>> {};

TEST_P(CompressorChunks, PoolTheFormulaAndDoNotMatter) {
  const auto [c, backend] = GetParam();
  Rng rng{51};
  std::vector<float> k = random_floats(rng, c.tokens * c.item_width());
  std::vector<float> s = random_floats(rng, c.tokens * c.item_width(), 2.0);
  const std::vector<float> norm = random_floats(rng, c.width);
  State whole(c);
  const std::vector<float> rows = stream(c, k, s, norm, c.tokens, whole, backend);
  ASSERT_EQ(static_cast<std::int64_t>(rows.size()), c.tokens / c.rate * c.width);
  for (const std::int64_t chunk : {1, 2, 3, 5, 7}) {
    State state(c);
    EXPECT_EQ(stream(c, k, s, norm, chunk, state, backend), rows) << chunk;
    EXPECT_EQ(state, whole) << chunk;
  }
  for (std::int64_t n = 0; n < c.tokens / c.rate; ++n) {
    std::vector<float> want;
    for (std::int64_t ch = 0; ch < c.width; ++ch) {
      double total = 0, sum = 0;
      const auto add = [&](std::int64_t position, std::int64_t column) {
        const double weight = std::exp(s[position * c.item_width() + column]);
        total += weight;
        sum += weight * k[position * c.item_width() + column];
      };
      for (std::int64_t i = 0; i < c.rate; ++i) {
        if (c.overlapping && n > 0) add((n - 1) * c.rate + i, ch);
        add(n * c.rate + i, c.overlapping ? c.width + ch : ch);
      }
      want.push_back(static_cast<float>(sum / total));
    }
    const View<float, 2> row(want.data(), {1, c.width});
    rms_norm_ref({.x = row, .weight = {norm.data(), {c.width}}, .eps = 1e-6, .out = row});
    double angles[4];
    const View<double, 3> table(angles, {1, 2, 2});
    rope_table_ref({.first = n * c.rate, .step = 1, .frequencies = kFrequencies, .table = table});
    rope_ref({.x = {want.data(), {1, 1, c.width}}, .table = table, .inverse = false});
    for (std::int64_t ch = 0; ch < c.width; ++ch) EXPECT_NEAR(rows[n * c.width + ch], want[ch], 2e-6) << n << ' ' << ch;
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, CompressorChunks,
                         testing::Combine(testing::Values(Case{4, 20, 23, true}, Case{4, 6, 16, true},
                                                          Case{16, 18, 50, false}, Case{128, 8, 257, false},
                                                          Case{4, 8, 3, true}),
                                          testing::Values(Backend::ref, Backend::cpu)));

TEST(PositionBias, FollowsTheAbsolutePosition) {
  const std::vector<float> bias{0, 10, 20, 30};
  std::vector<float> s(3, 1.0f);
  position_bias_ref({.s = {s.data(), {3, 1}}, .bias = {bias.data(), {4, 1}}, .first_position = 6});
  EXPECT_EQ(s, (std::vector<float>{21, 31, 1}));
}

}  // namespace
}  // namespace plumb
