#include "switches/switches.h"

#include <gtest/gtest.h>

#include "switches/on_side.h"

namespace plumb {
namespace {

TEST(Settings, DefaultsFollowTheTable) {
  const Settings settings = Settings::defaults();
  for (std::size_t i = 0; i < kSwitchCount; ++i) EXPECT_EQ(settings.on(i, 5), kSwitches[i].by_default);
  for (std::size_t i = 0; i < kSwitchCount; ++i) EXPECT_FALSE(Settings().on(i, 5));
}

TEST(Settings, LayersAreSetOneByOneAndDescribedAsWritten) {
  Settings settings;
  constexpr std::size_t index = switch_index("attention.split_k");
  ASSERT_TRUE(settings.set("attention.split_k", "on@0-2,5"));
  EXPECT_TRUE(settings.on(index, 0));
  EXPECT_FALSE(settings.on(index, 3));
  EXPECT_TRUE(settings.on(index, 5));
  EXPECT_EQ(settings.describe(index), "on@0-2,5");
  ASSERT_TRUE(settings.set("attention.split_k", "off@1"));
  EXPECT_TRUE(settings.on(index, 0));
  EXPECT_FALSE(settings.on(index, 1));
  EXPECT_EQ(settings.describe(index), "off@1");
  ASSERT_TRUE(settings.set("attention.split_k", "on"));
  EXPECT_EQ(settings.describe(index), "on");
}

TEST(Settings, WhatDoesNotParseIsRefusedWithTheReason) {
  Settings settings;
  const auto unknown = settings.set("attention.splitk", "on");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("attention.split_k"), std::string::npos);
  for (const char* value : {"", "ON", "true", "on@", "on@x", "on@3-1", "on@-1", "on@1,", "on@128", "on@1-", "off@ 1"})
    EXPECT_FALSE(settings.set("attention.split_k", value)) << value;
  EXPECT_EQ(settings, Settings());
}

// Also over a switch that is on by default: on@LAYERS means these layers and no other.
TEST(Settings, WhatIsDescribedCanBeSetAgain) {
  constexpr std::size_t index = switch_index("attention.split_k");
  for (const char* value : {"on", "off", "on@0", "on@0-2,5", "off@1", "off@0-3,6"}) {
    Settings settings = Settings::defaults();
    ASSERT_TRUE(settings.set("attention.split_k", value));
    EXPECT_EQ(settings.describe(index), value);
    Settings again;
    ASSERT_TRUE(again.set("attention.split_k", settings.describe(index)));
    EXPECT_EQ(again.describe(index), value);
  }
}

TEST(Settings, LayersThatTheModelOrTheSwitchDoesNotHaveAreRefused) {
  for (const char* value : {"on@7", "on@99", "off@99", "on@0-7", "off@3,7", "on@120-127"}) {
    Settings settings = Settings::defaults();
    ASSERT_TRUE(settings.set("attention.split_k", value));
    const auto checked = settings.check_layers(7);
    ASSERT_FALSE(checked) << value;
    EXPECT_NE(checked.error().message.find("layers 0 to 6"), std::string::npos);
  }
  for (const char* value : {"on", "off", "on@0-6", "off@6"}) {
    Settings settings = Settings::defaults();
    ASSERT_TRUE(settings.set("attention.split_k", value));
    EXPECT_TRUE(settings.check_layers(7)) << value;
  }
  Settings settings;
  EXPECT_FALSE(settings.set("prefix_cache", "on@0"));
}

TEST(Settings, UseCountsTheSideTaken) {
  constexpr std::size_t index = switch_index("indexer.fused");
  Settings settings;
  ASSERT_TRUE(settings.set("indexer.fused", "on@2"));
  const SideCounts before = side_counts(index);
  EXPECT_TRUE(settings.use(index, 2));
  EXPECT_FALSE(settings.use(index, 1));
  EXPECT_FALSE(settings.use(index, 1));
  EXPECT_EQ(side_counts(index).on, before.on + 1);
  EXPECT_EQ(side_counts(index).off, before.off + 2);
}

TEST(Backend, NamesAreReadBackAndOthersRefused) {
  for (const Backend backend : {Backend::ref, Backend::cpu}) EXPECT_EQ(parse_backend(backend_name(backend)), backend);
  for (const char* name : {"", "CPU", "cuda", "ref "}) {
    const auto parsed = parse_backend(name);
    ASSERT_FALSE(parsed) << name;
    EXPECT_NE(parsed.error().message.find("there are cpu and ref"), std::string::npos);
  }
}

// Ops as a switch sees them: a plain one with a twin, and an on side, with and without one.
int plain_ref(int x) { return x; }
int plain_cpu(int x) { return x + 10; }
int fast_ref(int x) { return x + 100; }
int wrong(int x) { return -x; }

}  // namespace

template <>
inline constexpr auto kCpuTwin<&plain_ref> = &plain_cpu;
template <>
struct Sides<"attention.split_k"> {
  static constexpr auto* off = &plain_ref;
  static constexpr auto* on = &fast_ref;
};

template <>
struct Step<"attention.derotate"> {
  static constexpr auto* run = &plain_ref;
};

namespace {

TEST(Steps, EachBackendRunsItsTwinAndAPlantIsWrongOnBoth) {
  const auto before = detail::step_table;
  EXPECT_EQ(run_step<"attention.derotate">(Backend::ref, 7), 7);
  EXPECT_EQ(run_step<"attention.derotate">(Backend::cpu, 7), 17);
  replace_step<"attention.derotate">(&wrong);
  for (const Backend backend : {Backend::ref, Backend::cpu}) EXPECT_EQ(run_step<"attention.derotate">(backend, 7), -7);
  detail::step_table = before;
}

TEST(Sides, EachBackendRunsItsTwinAndAPlantIsWrongOnBoth) {
  const auto before = detail::side_table;
  Settings off, on;
  ASSERT_TRUE(on.set("attention.split_k", "on@2"));
  const auto run = [](Backend backend, const Settings& settings) {
    return chosen_side<"attention.split_k">(backend, settings, 2, 7);
  };
  EXPECT_EQ(run(Backend::ref, off), 7);
  EXPECT_EQ(run(Backend::cpu, off), 17);
  EXPECT_EQ(run(Backend::ref, on), 107);
  EXPECT_EQ(run(Backend::cpu, on), 107);  // no twin: the reference of the on side
  replace_on_side<"attention.split_k">(&wrong);
  for (const Backend backend : {Backend::ref, Backend::cpu}) EXPECT_EQ(run(backend, on), -7);
  EXPECT_EQ(run(Backend::cpu, off), 17);
  replace_off_side<"attention.split_k">(&wrong);
  for (const Backend backend : {Backend::ref, Backend::cpu}) EXPECT_EQ(run(backend, off), -7);
  detail::side_table = before;
}

}  // namespace
}  // namespace plumb
