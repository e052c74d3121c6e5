#include "engine/state.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "engine/local_sequence.h"
#include "engine/random_world.h"

namespace plumb {
namespace {

TEST(StateLayout, KindsTileTheirHomesWithoutHoleOrOverlap) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Settings launch;
    const char* keys = seed % 2 == 0 ? "on" : "off";
    ASSERT_TRUE(launch.set("kv.fp8", seed % 2 == 0 ? "on@0,2" : "off") && launch.set("indexer.fp8_keys", keys));
    const StateLayout layout(random_model(seed)->config, launch);
    std::map<Home, std::int64_t> next;
    std::set<std::string> names;
    for (const StateKind& kind : layout.kinds()) {
      EXPECT_EQ(kind.offset, next[kind.home]) << kind.name;
      next[kind.home] += kind.rows * kind.width;
      EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    }
    EXPECT_EQ(next[Home::page], layout.page_floats());
    EXPECT_EQ(next[Home::window_page], layout.window_page_floats());
    EXPECT_EQ(next[Home::open], layout.open_floats());
  }
}

TEST(StateLayout, AFreshSequenceHasAbsentGatesAndZeroKeys) {
  const StateLayout layout(random_model(3)->config);
  const std::vector<float> open = fresh_open(layout);
  ASSERT_EQ(static_cast<std::int64_t>(open.size()), layout.open_floats());
  for (const StateKind& kind : layout.kinds()) {
    if (kind.home != Home::open) continue;
    const bool gate = kind.name.ends_with("_s");
    EXPECT_TRUE(gate || kind.name.ends_with("_k")) << kind.name;
    for (std::int64_t i = 0; i < kind.rows * kind.width; ++i) {
      const float value = open[static_cast<std::size_t>(kind.offset + i)];
      EXPECT_EQ(value, gate ? -std::numeric_limits<float>::infinity() : 0.0f) << kind.name;
    }
  }
}

TEST(StateLayout, TheTailIsAFunctionOfTheTokensAlone) {
  const auto model = random_model(4);
  Engine engine(model, std::make_shared<InlineExecutor>());
  Rng rng{4};
  const std::vector<std::int32_t> ids = random_ids(model->config, 200, rng);
  const Settings settings;
  const auto tail_after = [&](std::int64_t chunk) {
    LocalSequence sequence(engine.layout());
    std::vector<float> logits(static_cast<std::size_t>(model->config.vocab_size));
    for (std::int64_t first = 0; first < 200; first += chunk) {
      const std::int64_t count = std::min<std::int64_t>(chunk, 200 - first);
      const BatchSequence in{&sequence.reserve(first + count),
                             std::span(ids).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                             false, nullptr};
      engine.forward({std::span(&in, 1), &settings}, {logits.data(), {1, model->config.vocab_size}});
    }
    std::vector<float> tail(static_cast<std::size_t>(engine.layout().tail_floats()));
    save_tail(engine.layout(), sequence.state(), tail);
    for (const float value : tail) EXPECT_FALSE(std::isnan(value));
    return tail;
  };
  const std::vector<float> one_shot = tail_after(200);
  for (const std::int64_t chunk : {1, 3, 64, 131}) EXPECT_EQ(tail_after(chunk), one_shot) << chunk;
}

}  // namespace
}  // namespace plumb
