#include "ops/indexer_fused/indexer_fused.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/twin.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t tokens, heads, dim, first_position, rate, k;
  double scale;  // small: most scores are exact zeros, so ties decide
};

struct World {
  World(const Shape& s, std::uint64_t seed) : shape(s) {
    Rng rng{seed};
    q = random_floats(rng, s.tokens * s.heads * s.dim, s.scale);
    weights = random_floats(rng, s.tokens * s.heads);
    rows = (s.first_position + s.tokens) / s.rate;
    for (std::int64_t page = 0; page <= rows / rows_per_page; ++page) {
      // Rows past the visible ones are poison, and so is what lies around a page's rows.
      memory.emplace_back(static_cast<std::size_t>(5 + rows_per_page * s.dim + 5),
                          std::numeric_limits<float>::quiet_NaN());
      for (std::int64_t r = 0; r < rows_per_page && page * rows_per_page + r < rows; ++r) {
        const std::vector<float> key = random_floats(rng, s.dim);
        std::copy(key.begin(), key.end(), memory.back().begin() + 5 + r * s.dim);
      }
      pages.push_back(memory.back().data());
    }
  }
  PagedRows keys() const { return {pages, 5, rows_per_page, shape.dim}; }
  Indexer args(float* scores, std::int32_t* selected) const {
    return {.q = {q.data(), {shape.tokens, shape.heads, shape.dim}},
            .head_weights = {weights.data(), {shape.tokens, shape.heads}},
            .keys = keys(),
            .first_position = shape.first_position,
            .rate = shape.rate,
            .scores = {scores, {scores == nullptr ? 0 : shape.tokens, scores == nullptr ? 0 : rows}},
            .seen = nullptr,
            .selected = {selected, {shape.tokens, shape.k}}};
  }
  Shape shape;
  std::int64_t rows = 0, rows_per_page = 32;
  std::vector<float> q, weights;
  std::vector<std::vector<float>> memory;
  std::vector<float*> pages;
};

static_assert(kCpuTwin<&indexer_ref> == &indexer_cpu && kCpuTwin<&indexer_fused_ref> == &indexer_fused_cpu);

class IndexerTwin : public testing::TestWithParam<Shape> {};

TEST_P(IndexerTwin, FusedSelectsWhatScoresThenTopkSelectOnEitherBackend) {
  const World world(GetParam(), 71);
  const Shape& s = world.shape;
  for (const Backend backend : {Backend::ref, Backend::cpu}) {
    Guarded<float> scores(s.tokens * world.rows);
    Guarded<std::int32_t> off(s.tokens * s.k), on(s.tokens * s.k);
    off_side<"indexer.fused">(backend, world.args(scores.data(), off.data()));
    for_each_isa([&](Isa isa) {
      on_side<"indexer.fused">(backend, world.args(nullptr, on.data()));
      EXPECT_EQ(std::memcmp(on.data(), off.data(), off.values().size_bytes()), 0)
          << backend_name(backend) << ' ' << static_cast<int>(isa);
    });
    EXPECT_TRUE(on.guards_intact() && off.guards_intact() && scores.guards_intact());
  }
}

TEST_P(IndexerTwin, ScoresAreTheFormulaAndMaskedByPosition) {
  const World world(GetParam(), 72);
  const Shape& s = world.shape;
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.dim * s.heads));
  for (const Backend backend : {Backend::ref, Backend::cpu}) {
    Guarded<float> scores(s.tokens * world.rows);
    Guarded<std::int32_t> selected(s.tokens * s.k);
    off_side<"indexer.fused">(backend, world.args(scores.data(), selected.data()));
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t n = 0; n < world.rows; ++n) {
        double want = 0, size = 0;
        for (std::int64_t h = 0; h < s.heads; ++h) {
          double dot = 0, absolute = 0;
          for (std::int64_t d = 0; d < s.dim; ++d) {
            const double product = static_cast<double>(world.q[(t * s.heads + h) * s.dim + d]) * world.keys().row(n)[d];
            dot += product;
            absolute += std::abs(product);
          }
          want += world.weights[t * s.heads + h] * scale * std::max(0.0, dot);
          size += std::abs(world.weights[t * s.heads + h] * scale * absolute);
        }
        if (n >= (s.first_position + t + 1) / s.rate) want = -std::numeric_limits<double>::infinity();
        const float got = scores.values()[t * world.rows + n];
        if (std::isinf(want))
          EXPECT_EQ(got, want) << t << ' ' << n;
        else
          EXPECT_NEAR(got, want, 1e-6 * size + 1e-37) << t << ' ' << n;
      }
  }
}

TEST_P(IndexerTwin, ScoresOfBackendCpuAreWithinBudgetAndTheSameWhateverTheQueriesAndInstructionSet) {
  const World world(GetParam(), 74);
  const Shape& s = world.shape;
  const auto run = [&](Backend backend, std::int64_t tile, Guarded<float>& scores) {
    Guarded<std::int32_t> selected(s.tokens * s.k);
    std::fill_n(scores.data(), s.tokens * world.rows, -std::numeric_limits<float>::infinity());
    for (std::int64_t t = 0; t < s.tokens; t += tile) {
      const std::int64_t end = std::min(t + tile, s.tokens);
      Indexer args = world.args(scores.data(), selected.data());
      args.q = args.q.rows(t, end);
      args.head_weights = args.head_weights.rows(t, end);
      args.first_position += t;
      args.scores = args.scores.rows(t, end);
      args.selected = args.selected.rows(t, end);
      off_side<"indexer.fused">(backend, args);
    }
  };
  Guarded<float> ref(s.tokens * world.rows), cpu(s.tokens * world.rows);
  run(Backend::ref, s.tokens, ref);
  run(Backend::cpu, s.tokens, cpu);
  // Dot products in sixteen chains, then one chain over the heads, whose terms may cancel.
  EXPECT_LE(nmse(cpu.values(), ref.values()), 3e-14);
  for_each_isa([&](Isa isa) {
    for (const std::int64_t tile : {std::int64_t{1}, std::int64_t{5}, s.tokens}) {
      Guarded<float> again(s.tokens * world.rows);
      run(Backend::cpu, tile, again);
      EXPECT_EQ(std::memcmp(again.data(), cpu.data(), cpu.values().size_bytes()), 0) << static_cast<int>(isa);
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Shapes, IndexerTwin,
                         testing::Values(Shape{1, 4, 16, 0, 4, 3, 1}, Shape{1, 4, 16, 2, 4, 3, 1},
                                         Shape{1, 4, 64, 1023, 4, 64, 1}, Shape{37, 4, 16, 130, 4, 8, 1},
                                         Shape{20, 3, 10, 301, 4, 16, 1e-30}, Shape{5, 64, 16, 517, 4, 200, 1},
                                         Shape{17, 1, 8, 40, 8, 1, 1}));

class IndexerOn : public testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, IndexerOn, testing::Values(Backend::ref, Backend::cpu));

TEST_P(IndexerOn, WhatTheObserverWritesIsWhatIsSelectedFrom) {
  const World world({3, 2, 8, 60, 4, 2, 1}, 73);
  std::vector<float> scores(3 * static_cast<std::size_t>(world.rows));
  std::vector<std::int32_t> selected(6);
  const std::function<void(View<float, 2>)> seen = [](View<float, 2> view) {
    for (std::int64_t t = 0; t < 3; ++t) view(t, 7) = view(t, 11) = 1e9f;
  };
  Indexer args = world.args(scores.data(), selected.data());
  args.seen = &seen;
  on_backend<&indexer_ref>(GetParam())(args);
  EXPECT_EQ(selected, (std::vector<std::int32_t>{7, 11, 7, 11, 7, 11}));
}

}  // namespace
}  // namespace plumb
