#include "switches/switches.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(settings.describe(index), "on@0,2,5");
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

}  // namespace
}  // namespace plumb
