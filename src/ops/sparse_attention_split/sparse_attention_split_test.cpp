#include "ops/sparse_attention_split/sparse_attention_split.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/twin.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t tokens, heads, dim, first_position, window, rate, k;  // k 0: all visible rows
  double sink;
};

struct World {
  World(const Shape& s, std::uint64_t seed) : shape(s) {
    Rng rng{seed};
    const std::int64_t positions = s.first_position + s.tokens;
    q = random_floats(rng, s.tokens * s.heads * s.dim);
    sinks.assign(static_cast<std::size_t>(s.heads), static_cast<float>(s.sink));
    fill(rng, window_memory, window_pages, positions, 128);
    if (s.rate > 0) fill(rng, row_memory, row_pages, positions / s.rate, 128 / s.rate);
    for (std::int64_t t = 0; t < s.tokens && s.k > 0; ++t) {
      const std::int64_t visible = (s.first_position + t + 1) / s.rate;
      std::set<std::int64_t> chosen;
      while (static_cast<std::int64_t>(chosen.size()) < std::min(s.k, visible))
        chosen.insert(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(visible))));
      selected.insert(selected.end(), static_cast<std::size_t>(s.k) - chosen.size(), -1);
      selected.insert(selected.end(), chosen.begin(), chosen.end());
    }
  }
  void fill(Rng& rng, std::vector<std::vector<float>>& memory, std::vector<float*>& pages, std::int64_t rows,
            std::int64_t rows_per_page) const {
    for (std::int64_t n = 0; n < rows; ++n) {
      if (n % rows_per_page == 0) {
        memory.emplace_back(static_cast<std::size_t>(rows_per_page * shape.dim),
                            std::numeric_limits<float>::quiet_NaN());
        pages.push_back(memory.back().data());
      }
      const std::vector<float> row = random_floats(rng, shape.dim);
      std::copy(row.begin(), row.end(), pages.back() + n % rows_per_page * shape.dim);
    }
  }
  SparseAttention args(float* out) {
    return {.q = {q.data(), {shape.tokens, shape.heads, shape.dim}},
            .scale = 1.0 / std::sqrt(static_cast<double>(shape.dim)),
            .first_position = shape.first_position,
            .window_rows = {window_pages, 0, 128, shape.dim},
            .window = shape.window,
            .rows = {row_pages, 0, shape.rate == 0 ? 1 : 128 / shape.rate, shape.dim},
            .rate = shape.rate,
            .selected = shape.k > 0 ? View<const std::int32_t, 2>(selected.data(), {shape.tokens, shape.k})
                                    : View<const std::int32_t, 2>(),
            .sinks = {sinks.data(), {shape.heads}},
            .out = {out, {shape.tokens, shape.heads, shape.dim}},
            .scratch = &scratch};
  }
  // The formula, key by key in long double.
  std::vector<double> formula(std::int64_t t, std::int64_t h) {
    std::vector<long double> sum(static_cast<std::size_t>(shape.dim), 0.0L);
    long double total = std::exp(static_cast<long double>(sinks[h]));
    const auto see = [&](const float* key) {
      long double z = 0;
      for (std::int64_t d = 0; d < shape.dim; ++d)
        z += static_cast<long double>(q[(t * shape.heads + h) * shape.dim + d]) * key[d];
      const long double weight = std::exp(z / std::sqrt(static_cast<long double>(shape.dim)));
      total += weight;
      for (std::int64_t d = 0; d < shape.dim; ++d) sum[d] += weight * key[d];
    };
    const std::int64_t p = shape.first_position + t;
    for (std::int64_t i = std::max<std::int64_t>(0, p - shape.window + 1); i <= p; ++i)
      see(window_pages[i / 128] + i % 128 * shape.dim);
    for (std::int64_t n = 0; shape.rate > 0 && n < (p + 1) / shape.rate; ++n) {
      const auto* ids = selected.data() + t * shape.k;
      if (shape.k == 0 || std::find(ids, ids + shape.k, n) != ids + shape.k)
        see(row_pages[n / (128 / shape.rate)] + n % (128 / shape.rate) * shape.dim);
    }
    std::vector<double> out;
    for (const long double value : sum) out.push_back(static_cast<double>(value / total));
    return out;
  }
  Shape shape;
  std::vector<float> q, sinks;
  std::vector<std::int32_t> selected;
  std::vector<std::vector<float>> window_memory, row_memory;
  std::vector<float*> window_pages, row_pages;
  AttentionScratch scratch;
};

static_assert(kCpuTwin<&sparse_attention_ref> == &sparse_attention_cpu);
static_assert(kCpuTwin<&sparse_attention_split_ref> == &sparse_attention_split_cpu);

class SparseAttentionTwin : public testing::TestWithParam<Shape> {};

TEST_P(SparseAttentionTwin, OffSideIsTheFormula) {
  World world(GetParam(), 91);
  const Shape& s = world.shape;
  for (const Backend backend : {Backend::ref, Backend::cpu}) {
    Guarded<float> out(s.tokens * s.heads * s.dim);
    off_side<"attention.split_k">(backend, world.args(out.data()));
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::vector<double> want = world.formula(t, h);
        for (std::int64_t d = 0; d < s.dim; ++d)
          EXPECT_NEAR(out.values()[(t * s.heads + h) * s.dim + d], want[d], 1e-6 * (1 + std::abs(want[d])))
              << backend_name(backend) << ' ' << t << ' ' << h << ' ' << d;
      }
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST_P(SparseAttentionTwin, SplitIsWithinBudgetOfOnePass) {
  World world(GetParam(), 92);
  const std::int64_t size = world.shape.tokens * world.shape.heads * world.shape.dim;
  for (const Backend backend : {Backend::ref, Backend::cpu}) {
    Guarded<float> off(size), on(size);
    off_side<"attention.split_k">(backend, world.args(off.data()));
    on_side<"attention.split_k">(backend, world.args(on.data()));
    EXPECT_TWIN("attention.split_k", on, off.values()) << backend_name(backend);
    RecordProperty("nmse_" + std::string(backend_name(backend)),
                   testing::PrintToString(nmse(on.values(), off.values())));
  }
}

// Scores in sixteen chains, exponentials, chains over the keys. What is rounded off z - M is as large as the larger of
// the two allows: half a unit in the last place of the sink.
TEST_P(SparseAttentionTwin, BackendCpuIsWithinBudgetOfTheReference) {
  World world(GetParam(), 95);
  const std::int64_t size = world.shape.tokens * world.shape.heads * world.shape.dim;
  for (const bool split : {false, true}) {
    Guarded<float> ref(size), cpu(size);
    (split ? sparse_attention_split_ref : sparse_attention_ref)(world.args(ref.data()));
    (split ? sparse_attention_split_cpu : sparse_attention_cpu)(world.args(cpu.data()));
    const double error = nmse(cpu.values(), ref.values());
    EXPECT_LE(error, 2e-13 + std::pow(std::max(world.shape.sink, 0.0) * 0x1p-24, 2.0) / 3) << split;
    EXPECT_TRUE(cpu.guards_intact());
    RecordProperty(split ? "nmse_split" : "nmse", testing::PrintToString(error));
  }
}

TEST_P(SparseAttentionTwin, BitsDependOnNeitherInstructionSetNorBatch) {
  World world(GetParam(), 93);
  const Shape& s = world.shape;
  const std::int64_t row = s.heads * s.dim;
  for (const auto side :
       {&sparse_attention_ref, &sparse_attention_split_ref, &sparse_attention_cpu, &sparse_attention_split_cpu}) {
    std::vector<float> want(static_cast<std::size_t>(s.tokens * row)), got(want.size());
    side(world.args(want.data()));
    for_each_isa([&](Isa isa) {
      for (std::int64_t t = 0; t < s.tokens; ++t) {  // one query at a time
        SparseAttention one = world.args(got.data() + t * row);
        one.q = one.q.rows(t, t + 1);
        one.first_position += t;
        if (s.k > 0) one.selected = one.selected.rows(t, t + 1);
        one.out = View<float, 3>(got.data() + t * row, {1, s.heads, s.dim});
        side(one);
      }
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << static_cast<int>(isa);
    });
  }
}
// A first token alone, window only, selections that truncate, all visible rows, more positions than one turn of the
// splits, a window of 128, sinks that vanish or dominate.
INSTANTIATE_TEST_SUITE_P(Shapes, SparseAttentionTwin,
                         testing::Values(Shape{1, 1, 8, 0, 32, 0, 0, 0.3}, Shape{9, 4, 32, 120, 32, 0, 0, 0.3},
                                         Shape{40, 4, 16, 0, 32, 4, 16, -0.5}, Shape{5, 4, 128, 1019, 64, 4, 64, 0.3},
                                         Shape{6, 3, 16, 380, 64, 128, 0, 0.3}, Shape{2, 8, 16, 8190, 128, 4, 100, 0.3},
                                         Shape{3, 2, 8, 700, 64, 4, 32, -1e30}, Shape{3, 2, 8, 700, 64, 4, 32, 60}));

TEST(SparseAttentionSplit, ContextOfAThousandTokensFillsSeveralSplits) {
  World world({1, 1, 8, 1023, 64, 4, 64, 0}, 94);
  std::set<std::int64_t> splits;
  std::vector<float> out(8);
  for_each_key(world.args(out.data()), 0, [&](const AttentionKey& key) { splits.insert(split_of(key)); });
  EXPECT_GE(splits.size(), 5u);
}

}  // namespace
}  // namespace plumb
