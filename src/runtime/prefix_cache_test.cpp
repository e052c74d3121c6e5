#include "runtime/prefix_cache.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.head_dim = 8;
  config.index_head_dim = 4;
  config.window = 16;
  config.layers = {{AttentionKind::sliding, 0, MoeKind::scored},
                   {AttentionKind::compressed_sparse, 4, MoeKind::scored}};
  return config;
}

class PrefixCacheTest : public testing::Test {
 protected:
  PrefixCacheTest() : layout_(small_config()), pool_(*PagePool::make(16, layout_.page_floats())) {}

  // Stores a prefix of `tokens`, as a sequence would that owns its pages and gives them back.
  void store(PrefixCache& cache, const std::string& key, const std::vector<std::int32_t>& tokens) {
    SequenceState state;
    state.length = static_cast<std::int64_t>(tokens.size());
    state.open = fresh_open(layout_);
    std::vector<int> pages;
    std::vector<float> window(static_cast<std::size_t>(layout_.window_page_floats()), 1.0f);
    for (std::int64_t begin = 0; begin < state.length; begin += kPageTokens) {
      const int page = pool_.take();
      ASSERT_GE(page, 0);
      std::fill_n(pool_.data(page), pool_.page_floats(), static_cast<float>(page));
      pages.push_back(page);
      state.pages.push_back(pool_.data(page));
      state.window_pages.push_back(window.data());
    }
    cache.insert(key, tokens, pages, layout_, state);
    for (const int page : pages) pool_.release(page);
  }

  std::vector<std::int32_t> tokens(int count, int start = 0) const {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), start);
    return tokens;
  }

  StateLayout layout_;
  PagePool pool_;
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefixOfExactTokensUnderTheKey) {
  PrefixCache cache(pool_, 1 << 20);
  store(cache, "k", tokens(5));
  store(cache, "k", tokens(130));
  store(cache, "other", tokens(140));
  EXPECT_EQ(cache.find("k", tokens(200), 200)->tokens.size(), 130u);
  EXPECT_EQ(cache.find("k", tokens(200), 129)->tokens.size(), 5u);
  EXPECT_EQ(cache.find("k", tokens(130), 130)->tokens.size(), 130u);
  EXPECT_EQ(cache.find("k", tokens(200, 1), 200), nullptr);
  EXPECT_EQ(cache.find("none", tokens(200), 200), nullptr);
  EXPECT_EQ(cache.find("k", tokens(4), 4), nullptr);
  auto almost = tokens(200);
  almost[129] = 7;
  EXPECT_EQ(cache.find("k", almost, 200)->tokens.size(), 5u);
}

TEST_F(PrefixCacheTest, PagesComeBackWhenNodesAreDropped) {
  {
    PrefixCache cache(pool_, 1 << 20);
    store(cache, "k", tokens(130));
    store(cache, "k", tokens(300, 9));
    EXPECT_EQ(pool_.free_count(), 16 - 2 - 3);
    EXPECT_TRUE(cache.make_room(12));  // drops the older one
    EXPECT_EQ(cache.find("k", tokens(130), 130), nullptr);
    EXPECT_NE(cache.find("k", tokens(300, 9), 300), nullptr);
    EXPECT_FALSE(cache.make_room(17));
  }
  EXPECT_EQ(pool_.free_count(), 16);
}

TEST_F(PrefixCacheTest, StaysUnderItsByteLimitAndForgetsTheLeastRecentlyUsed) {
  const std::int64_t node = layout_.tail_floats() * 4 + 10 * 4;
  PrefixCache cache(pool_, 2 * node);
  store(cache, "k", tokens(10, 0));
  store(cache, "k", tokens(10, 1));
  EXPECT_NE(cache.find("k", tokens(10, 0), 10), nullptr);  // now the most recent
  store(cache, "k", tokens(10, 2));
  EXPECT_EQ(cache.node_count(), 2);
  EXPECT_NE(cache.find("k", tokens(10, 0), 10), nullptr);
  EXPECT_EQ(cache.find("k", tokens(10, 1), 10), nullptr);
  PrefixCache tiny(pool_, 8);
  store(tiny, "k", tokens(10));
  EXPECT_EQ(tiny.node_count(), 0);
}

TEST_F(PrefixCacheTest, ANodeWhoseBytesChangedIsRefused) {
  PrefixCache cache(pool_, 1 << 20);
  store(cache, "k", tokens(5));
  store(cache, "k", tokens(130));
  const int page = cache.find("k", tokens(130), 130)->pages[1];
  pool_.data(page)[3] += 1;
  EXPECT_EQ(cache.find("k", tokens(130), 130)->tokens.size(), 5u);
  EXPECT_EQ(cache.digest_mismatches(), 1u);
  EXPECT_EQ(cache.node_count(), 1);
}

// 10,000 random operations against a model that is a plain list of what was stored.
TEST_F(PrefixCacheTest, RandomOperationsAgreeWithAPlainList) {
  Rng rng{5};
  PrefixCache cache(pool_, 1 << 20);
  for (int step = 0; step < 10000; ++step) {
    std::vector<std::int32_t> prompt;
    for (std::uint64_t i = 0, n = 1 + rng.below(150); i < n; ++i)
      prompt.push_back(static_cast<std::int32_t>(i % 40 == 0 ? rng.below(2) : 0));
    const std::string key = rng.below(2) == 0 ? "a" : "b";
    if (pool_.free_count() < 2) cache.make_room(4);
    if (rng.below(3) == 0) {
      store(cache, key, prompt);
      const PrefixNode* found = cache.find(key, prompt, static_cast<std::int64_t>(prompt.size()));
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->tokens, prompt);
    } else if (const PrefixNode* found = cache.find(key, prompt, static_cast<std::int64_t>(prompt.size()))) {
      EXPECT_EQ(found->key, key);
      ASSERT_LE(found->tokens.size(), prompt.size());
      EXPECT_TRUE(std::equal(found->tokens.begin(), found->tokens.end(), prompt.begin()));
    }
  }
  EXPECT_EQ(cache.digest_mismatches(), 0u);
  cache.clear();
  EXPECT_EQ(pool_.free_count(), 16);
}

TEST(PagePoolDeathTest, APageIsNeverReleasedTwice) {
  PagePool pool = *PagePool::make(2, 4);
  const int page = pool.take();
  pool.share(page);
  pool.release(page);
  pool.release(page);
  EXPECT_DEATH(pool.release(page), "broken invariant");
  EXPECT_DEATH(pool.share(page), "broken invariant");
}

}  // namespace
}  // namespace plumb
