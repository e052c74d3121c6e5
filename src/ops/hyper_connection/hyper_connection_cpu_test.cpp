#include <cstring>

#include <gtest/gtest.h>

#include "ops/head/head.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/twin.h"

namespace plumb {
namespace {

static_assert(kCpuTwin<&hc_pre_ref> == &hc_pre_cpu && kCpuTwin<&hc_post_ref> == &hc_post_cpu);
static_assert(kCpuTwin<&hc_head_ref> == &hc_head_cpu);

struct Shape {
  std::int64_t rows, streams, dim;
};

struct World {
  explicit World(const Shape& s) : shape(s) {
    Rng rng{46};
    const std::int64_t mixes = s.streams * (2 + s.streams), flat = s.streams * s.dim;
    streams = random_floats(rng, s.rows * flat);
    fn = random_floats(rng, flat * mixes, 1.0 / std::sqrt(static_cast<double>(flat)));
    head_fn = random_floats(rng, flat * s.streams, 1.0 / std::sqrt(static_cast<double>(flat)));
    base = random_floats(rng, mixes, 0.5);
    scale = random_floats(rng, 3);
    y = random_floats(rng, s.rows * s.dim);
    fed_back = random_floats(rng, s.rows * s.streams);
    mixing = random_floats(rng, s.rows * s.streams * s.streams);
  }
  // Outputs of hc_pre, hc_post and hc_head, `tile` rows at a time.
  struct Outputs {
    explicit Outputs(const Shape& s)
        : post(s.rows * s.streams),
          comb(s.rows * s.streams * s.streams),
          collapsed(s.rows * s.dim),
          streams(s.rows * s.streams * s.dim),
          head(s.rows * s.dim) {}
    Guarded<float> post, comb, collapsed, streams, head;
    std::vector<Guarded<float>*> all() { return {&post, &comb, &collapsed, &streams, &head}; }
  };
  void run(Backend backend, std::int64_t tile, Outputs& out) const {
    const auto [rows, n, d] = shape;
    const std::int64_t mixes = n * (2 + n);
    std::copy(streams.begin(), streams.end(), out.streams.data());
    for (std::int64_t t = 0; t < rows; t += tile) {
      const std::int64_t count = std::min(tile, rows - t);
      const View<const float, 3> in(streams.data() + t * n * d, {count, n, d});
      on_backend<&hc_pre_ref>(backend)({.streams = in,
                                        .fn = {fn.data(), {n * d, mixes}},
                                        .base = {base.data(), {mixes}},
                                        .scale = {scale.data(), {3}},
                                        .eps = 1e-6,
                                        .hc_eps = 1e-6,
                                        .iters = 20,
                                        .post = {out.post.data() + t * n, {count, n}},
                                        .comb = {out.comb.data() + t * n * n, {count, n, n}},
                                        .collapsed = {out.collapsed.data() + t * d, {count, d}}});
      on_backend<&hc_post_ref>(backend)({.y = {y.data() + t * d, {count, d}},
                                         .post = {fed_back.data() + t * n, {count, n}},
                                         .comb = {mixing.data() + t * n * n, {count, n, n}},
                                         .streams = {out.streams.data() + t * n * d, {count, n, d}}});
      on_backend<&hc_head_ref>(backend)({.streams = in,
                                         .fn = {head_fn.data(), {n * d, n}},
                                         .base = {base.data(), {n}},
                                         .scale = {scale.data(), {1}},
                                         .eps = 1e-6,
                                         .hc_eps = 1e-6,
                                         .out = {out.head.data() + t * d, {count, d}}});
    }
  }
  Shape shape;
  std::vector<float> streams, fn, head_fn, base, scale, y, fed_back, mixing;
};

class HyperConnectionCpu : public testing::TestWithParam<Shape> {};

// Sums of n*d products in n chains, sigmoids, twenty rounds of Sinkhorn (which do not add up: each corrects the last).
TEST_P(HyperConnectionCpu, IsWithinBudgetOfTheReference) {
  const World world(GetParam());
  World::Outputs ref(GetParam()), cpu(GetParam());
  world.run(Backend::ref, world.shape.rows, ref);
  world.run(Backend::cpu, world.shape.rows, cpu);
  const double bounds[] = {3e-14, 2e-13, 3e-14, 2e-14, 3e-14};
  for (std::size_t i = 0; i < 5; ++i) {
    const double error = nmse(cpu.all()[i]->values(), ref.all()[i]->values());
    EXPECT_LE(error, bounds[i]) << "output " << i;
    RecordProperty("nmse_" + std::to_string(i), testing::PrintToString(error));
  }
}

TEST_P(HyperConnectionCpu, BitsDependOnNeitherRowsNorInstructionSet) {
  const World world(GetParam());
  World::Outputs want(GetParam());
  world.run(Backend::cpu, world.shape.rows, want);
  for_each_isa([&](Isa isa) {
    for (const std::int64_t tile : {std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, world.shape.rows}) {
      World::Outputs again(GetParam());
      world.run(Backend::cpu, tile, again);
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(std::memcmp(again.all()[i]->data(), want.all()[i]->data(), want.all()[i]->values().size_bytes()), 0)
            << "output " << i << ", isa " << static_cast<int>(isa) << ", " << tile << " rows at a time";
        EXPECT_TRUE(again.all()[i]->guards_intact());
      }
    }
  });
}
// The release's four streams in whole lanes and with rests, more rows than a tile has, every other number of streams.
INSTANTIATE_TEST_SUITE_P(Shapes, HyperConnectionCpu,
                         testing::Values(Shape{37, 4, 256}, Shape{11, 4, 10}, Shape{3, 1, 33}, Shape{4, 2, 17},
                                         Shape{18, 3, 40}, Shape{2, 5, 16}, Shape{2, 6, 7}, Shape{2, 7, 30},
                                         Shape{5, 8, 20}));

}  // namespace
}  // namespace plumb
