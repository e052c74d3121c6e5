#include "runtime/prefix_cache.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb {
namespace {

using Tokens = std::vector<std::int32_t>;

ModelConfig small_config() {
  ModelConfig config;
  config.head_dim = 8;
  config.index_head_dim = 4;
  config.window = 16;
  config.layers = {{AttentionKind::sliding, 0, MoeKind::scored},
                   {AttentionKind::compressed_sparse, 4, MoeKind::scored}};
  return config;
}

Tokens tokens(int count, int start = 0) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), start);
  return tokens;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Tells apart what was stored for different prefixes.
float mark_of(const Tokens& prefix) {
  std::uint64_t h = 7;
  for (const std::int32_t token : prefix) h = mix64(h ^ static_cast<std::uint64_t>(token));
  return static_cast<float>(h % 1000003);
}

class PrefixCacheTest : public testing::Test {
 protected:
  static constexpr int kPages = 16;
  PrefixCacheTest() : layout_(small_config()), pool_(*PagePool::make(kPages, layout_.page_floats())) {}

  // The pages of a sequence that ran over `prefix`: each holds the mark of the prefix up to the page's end.
  std::vector<int> run(const Tokens& prefix) {
    std::vector<int> pages;
    for (std::size_t begin = 0; begin < prefix.size(); begin += kPageTokens) {
      const int page = pool_.take();
      CHECK(page >= 0);
      const auto end = static_cast<std::ptrdiff_t>(std::min(begin + kPageTokens, prefix.size()));
      std::fill_n(pool_.data(page), pool_.page_floats(), mark_of(Tokens(prefix.begin(), prefix.begin() + end)));
      pages.push_back(page);
    }
    return pages;
  }
  void release(const std::vector<int>& pages) {
    for (const int page : pages) pool_.release(page);
  }
  void insert(PrefixCache& cache, const std::string& key, const Tokens& prefix, const std::vector<int>& pages) {
    SequenceState state;
    state.length = static_cast<std::int64_t>(prefix.size());
    state.open = fresh_open(layout_);
    std::vector<float> window(static_cast<std::size_t>(layout_.window_page_floats()), mark_of(prefix));
    state.window_pages.assign(pages.size(), window.data());
    cache.insert(key, prefix, pages, layout_, state);
  }
  // Stores a prefix as a sequence that ends there, and gives its pages back.
  void store(PrefixCache& cache, const std::string& key, const Tokens& prefix) {
    const std::vector<int> pages = run(prefix);
    insert(cache, key, prefix, pages);
    release(pages);
  }
  std::int64_t found(PrefixCache& cache, const std::string& key, const Tokens& prefix) {
    return cache.find(key, prefix, static_cast<std::int64_t>(prefix.size())).length;
  }
  // A hit holds the pages and the tail of exactly the prefix that was asked for.
  void expect_right(const PrefixHit& hit, const Tokens& asked) {
    const Tokens prefix(asked.begin(), asked.begin() + hit.length);
    ASSERT_EQ(hit.pages.size(), (prefix.size() + kPageTokens - 1) / kPageTokens);
    for (std::size_t i = 0; i < hit.pages.size(); ++i) {
      const auto end = std::min((i + 1) * kPageTokens, prefix.size());
      const Tokens covered(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(end));
      EXPECT_EQ(pool_.data(hit.pages[i])[3], mark_of(covered)) << "page " << i << " of " << hit.length;
    }
    EXPECT_EQ(hit.tail.back(), mark_of(prefix));
  }

  StateLayout layout_;
  PagePool pool_;
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefixOfExactTokensUnderTheKey) {
  PrefixCache cache(pool_, 1 << 20);
  store(cache, "k", tokens(5));
  store(cache, "k", tokens(130));
  store(cache, "other", tokens(140));
  EXPECT_EQ(cache.find("k", tokens(200), 200).length, 130);
  EXPECT_EQ(cache.find("k", tokens(200), 129).length, 5);
  EXPECT_EQ(cache.find("k", tokens(130), 130).length, 130);
  EXPECT_EQ(cache.find("k", tokens(200, 1), 200).length, 0);
  EXPECT_EQ(cache.find("none", tokens(200), 200).length, 0);
  EXPECT_EQ(cache.find("k", tokens(4), 4).length, 0);
  EXPECT_EQ(cache.find("k", {}, 4).length, 0);
  auto almost = tokens(200);
  almost[129] = 7;
  EXPECT_EQ(cache.find("k", almost, 200).length, 5);
}

// Two prefixes that part at any offset share the sealed pages of what they have in common, no page beyond, and each
// keeps its own tail: nothing is found where they part, because no state was stored there.
TEST_F(PrefixCacheTest, PrefixesThatPartAtAnyOffsetShareOnlySealedPages) {
  for (int fork = 1; fork <= 300; ++fork) {
    SCOPED_TRACE(fork);
    PrefixCache cache(pool_, 1 << 20);
    const Tokens a = joined(tokens(fork), tokens(310 - fork, 1000));
    const Tokens b = joined(tokens(fork), tokens(310 - fork, 5000));
    store(cache, "k", a);
    store(cache, "k", b);
    EXPECT_EQ(pool_.free_count(), kPages - (3 + 3 - fork / kPageTokens));
    for (const Tokens& each : {a, b}) expect_right(cache.find("k", each, 310), each);
    EXPECT_EQ(found(cache, "k", joined(tokens(fork), tokens(9, 9000))), 0);
    // Storing at the fork itself adds one tail, and one page when the fork is inside a page.
    store(cache, "k", tokens(fork));
    EXPECT_EQ(pool_.free_count(), kPages - (3 + 3 - fork / kPageTokens) - (fork % kPageTokens != 0));
    expect_right(cache.find("k", joined(tokens(fork), tokens(9, 9000)), 300), tokens(fork));
    for (const Tokens& each : {a, b}) expect_right(cache.find("k", each, 310), each);
    EXPECT_EQ(cache.stats().nodes, 3);
  }
}

TEST_F(PrefixCacheTest, PagesComeBackWhenLeavesAreDropped) {
  {
    PrefixCache cache(pool_, 1 << 20);
    store(cache, "k", tokens(130));
    store(cache, "k", tokens(300, 9));
    EXPECT_EQ(pool_.free_count(), 16 - 2 - 3);
    EXPECT_TRUE(cache.make_room(12));  // drops the older one
    EXPECT_EQ(found(cache, "k", tokens(130)), 0);
    EXPECT_EQ(found(cache, "k", tokens(300, 9)), 300);
    EXPECT_FALSE(cache.make_room(17));
    EXPECT_EQ(found(cache, "k", tokens(300, 9)), 300);  // what would not do drops nothing
  }
  EXPECT_EQ(pool_.free_count(), 16);
}

// The pages of an inner node belong to what is below as well: the leaf goes first, however recently it was used.
TEST_F(PrefixCacheTest, ALeafGoesBeforeWhatItStandsOn) {
  PrefixCache cache(pool_, 1 << 20);
  const std::vector<int> pages = run(tokens(384));
  for (const std::size_t end : {128u, 256u, 384u})
    insert(cache, "k", tokens(static_cast<int>(end)), {pages.begin(), pages.begin() + static_cast<long>(end / 128)});
  release(pages);
  EXPECT_EQ(pool_.free_count(), kPages - 3);
  EXPECT_EQ(found(cache, "k", tokens(400)), 384);
  EXPECT_TRUE(cache.make_room(kPages - 2));
  EXPECT_EQ(found(cache, "k", tokens(400)), 256);
  EXPECT_TRUE(cache.make_room(kPages - 1));
  EXPECT_EQ(found(cache, "k", tokens(400)), 128);
}

// A page that a running sequence holds cannot be freed: what would not free a page stays.
TEST_F(PrefixCacheTest, LeavesWhosePagesAreInUseAreSpared) {
  PrefixCache cache(pool_, 1 << 20);
  const std::vector<int> held = run(tokens(128));
  insert(cache, "k", tokens(128), held);  // the least recently used, and in use
  store(cache, "k", tokens(256, 1000));
  EXPECT_EQ(cache.reclaimable_pages(), 2);
  EXPECT_TRUE(cache.make_room(kPages - 1));
  EXPECT_EQ(found(cache, "k", tokens(128)), 128);
  EXPECT_EQ(found(cache, "k", tokens(256, 1000)), 0);
  EXPECT_FALSE(cache.make_room(kPages));
  release(held);
  EXPECT_TRUE(cache.make_room(kPages));
  EXPECT_EQ(cache.stats().nodes, 0);
}

TEST_F(PrefixCacheTest, StaysUnderItsByteLimitAndForgetsTheLeastRecentlyUsedTail) {
  const std::int64_t node = layout_.tail_floats() * 4 + 10 * 4;
  PrefixCache cache(pool_, 2 * node);
  store(cache, "k", tokens(10, 0));
  store(cache, "k", tokens(10, 1));
  EXPECT_EQ(cache.stats().bytes, 2 * node);
  EXPECT_EQ(found(cache, "k", tokens(10, 0)), 10);  // now the most recent
  store(cache, "k", tokens(10, 2));
  EXPECT_EQ(cache.stats().nodes, 2);
  EXPECT_EQ(found(cache, "k", tokens(10, 0)), 10);
  EXPECT_EQ(found(cache, "k", tokens(10, 1)), 0);
  PrefixCache tiny(pool_, 8);
  store(tiny, "k", tokens(10));
  EXPECT_EQ(tiny.stats().nodes, 0);
}

// An inner tail goes before a more recent one below it, which stays whole.
TEST_F(PrefixCacheTest, AnInnerTailGoesAloneWhenBytesRunOut) {
  PrefixCache cache(pool_, 2 * layout_.tail_floats() * 4 + 400 * 4);
  store(cache, "k", tokens(130));
  store(cache, "k", tokens(140));
  store(cache, "k", tokens(150));
  EXPECT_EQ(found(cache, "k", tokens(135)), 0);
  expect_right(cache.find("k", tokens(145), 145), tokens(140));
  expect_right(cache.find("k", tokens(150), 150), tokens(150));
}

TEST_F(PrefixCacheTest, WhateverChangedItsBytesIsRefusedWithAllThatStandsOnIt) {
  const auto damaged = [&](const auto& damage) {
    PrefixCache cache(pool_, 1 << 20);
    store(cache, "k", tokens(5));
    store(cache, "k", tokens(130));
    store(cache, "k", tokens(260));
    store(cache, "k", joined(tokens(130), tokens(130, 500)));
    damage(cache.find("k", tokens(260), 260));
    pool_.before_writes();
    const std::int64_t length = found(cache, "k", tokens(260));
    EXPECT_EQ(cache.stats().digest_mismatches, 1u);
    return std::pair(length, cache.stats().nodes);
  };
  EXPECT_EQ(damaged([&](const PrefixHit& hit) { pool_.data(hit.pages[0])[3] += 1; }), std::pair(5l, 1l));
  EXPECT_EQ(damaged([&](const PrefixHit& hit) { pool_.data(hit.pages[1])[0] += 1; }), std::pair(130l, 3l));
  EXPECT_EQ(damaged([&](const PrefixHit& hit) { pool_.data(hit.pages[2])[0] += 1; }), std::pair(130l, 3l));
  EXPECT_EQ(damaged([&](const PrefixHit& hit) { const_cast<float&>(hit.tail[1]) += 1; }), std::pair(130l, 3l));
  EXPECT_EQ(pool_.free_count(), kPages);
}

TEST_F(PrefixCacheTest, ADigestIsRememberedOnlyUntilPagesMayBeWrittenTo) {
  const int page = pool_.take();
  pool_.data(page)[0] = 1;
  const std::uint64_t before = pool_.current_digest(page);
  pool_.data(page)[0] = 2;
  EXPECT_EQ(pool_.current_digest(page), before);
  pool_.before_writes();
  EXPECT_NE(pool_.current_digest(page), before);
  pool_.release(page);
  ASSERT_EQ(pool_.take(), page);
  pool_.data(page)[0] = 1;
  EXPECT_EQ(pool_.current_digest(page), before);
}

// The same policies over a plain list of what is stored; everything is counted anew at each question.
class PlainList {
 public:
  PlainList(std::int64_t tail_bytes, std::int64_t byte_limit) : tail_bytes_(tail_bytes), byte_limit_(byte_limit) {}

  std::int64_t find(const std::string& key, const Tokens& asked, std::int64_t most) {
    Entry* best = nullptr;
    for (Entry& entry : entries_)
      if (entry.key == key && entry.length() <= most && starts_with(asked, entry.prefix) &&
          (best == nullptr || entry.length() > best->length()))
        best = &entry;
    if (best == nullptr) return 0;
    best->used = ++clock_;
    return best->length();
  }
  void insert(const std::string& key, const Tokens& prefix) {
    for (Entry& entry : entries_)
      if (entry.key == key && entry.prefix == prefix) {
        entry.used = ++clock_;
        return;
      }
    const std::int64_t most = tail_bytes_ + static_cast<std::int64_t>(prefix.size()) * 4;
    if (most > byte_limit_) return;
    while (bytes() + most > byte_limit_) erase([](const Entry&) { return true; });
    entries_.push_back({key, prefix, ++clock_});
  }
  void make_room(std::int64_t page_count, std::int64_t pool_pages) {
    if (page_count > pool_pages) return;
    while (pool_pages - pages() < page_count) erase([&](const Entry& entry) { return is_leaf(entry); });
  }
  std::int64_t bytes() const { return size() * tail_bytes_ + 4 * distinct(1); }
  std::int64_t pages() const {
    return distinct(kPageTokens) +
           std::ranges::count_if(entries_, [](const Entry& entry) { return entry.length() % kPageTokens != 0; });
  }
  std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }

 private:
  struct Entry {
    std::string key;
    Tokens prefix;
    int used;
    std::int64_t length() const { return static_cast<std::int64_t>(prefix.size()); }
  };
  // How many different prefixes of a multiple of `unit` tokens there are: in sorted order, each entry adds those that
  // it does not have in common with the one before.
  std::int64_t distinct(std::int64_t unit) const {
    std::vector<const Entry*> sorted;
    for (const Entry& entry : entries_) sorted.push_back(&entry);
    std::ranges::sort(sorted, {}, [](const Entry* entry) { return std::tie(entry->key, entry->prefix); });
    std::int64_t count = 0;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      count += sorted[i]->length() / unit;
      if (i == 0 || sorted[i - 1]->key != sorted[i]->key) continue;
      const Tokens &a = sorted[i - 1]->prefix, &b = sorted[i]->prefix;
      count -= (std::ranges::mismatch(a, b).in1 - a.begin()) / unit;
    }
    return count;
  }
  static bool starts_with(const Tokens& whole, const Tokens& start) {
    return whole.size() >= start.size() && std::equal(start.begin(), start.end(), whole.begin());
  }
  bool is_leaf(const Entry& entry) const {
    return std::ranges::none_of(entries_, [&](const Entry& other) {
      return other.key == entry.key && other.length() > entry.length() && starts_with(other.prefix, entry.prefix);
    });
  }
  template <class Condition>
  void erase(Condition condition) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it)
      if (condition(*it) && (oldest == entries_.end() || it->used < oldest->used)) oldest = it;
    ASSERT_TRUE(oldest != entries_.end());
    entries_.erase(oldest);
  }

  std::int64_t tail_bytes_, byte_limit_;
  std::vector<Entry> entries_;
  int clock_ = 0;
};

// 10,000 random operations: stores of prefixes that fork from one another, questions, evictions. After each the cache
// has stored, found, dropped and counted what the plain list did.
TEST_F(PrefixCacheTest, RandomOperationsAgreeWithAPlainList) {
  for (std::uint64_t world = 0; world < 10; ++world) {
    Rng rng{world};
    const std::int64_t tail = layout_.tail_floats() * 4, limit = rng.between(1, 12) * tail + rng.between(0, 3000);
    PrefixCache cache(pool_, limit);
    PlainList list(tail, limit);
    std::vector<Tokens> seen{{}};
    for (int step = 0; step < 1000; ++step) {
      SCOPED_TRACE(testing::Message() << "world " << world << " step " << step);
      const Tokens& base = seen[rng.below(seen.size())];
      Tokens prefix(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(rng.below(base.size() + 1)));
      for (auto i = rng.between(prefix.empty(), 150); i > 0; --i) prefix.push_back(static_cast<int>(rng.below(2)));
      if (prefix.size() > 600) prefix.resize(600);
      if (rng.below(4) == 0) prefix.resize((prefix.size() / kPageTokens + 1) * kPageTokens, 0);
      if (seen.size() < 12) seen.emplace_back();
      seen[rng.below(seen.size())] = prefix;
      const std::string key = rng.below(3) == 0 ? "a" : "b";
      const auto length = static_cast<std::int64_t>(prefix.size());
      if (rng.below(2) == 0) {
        const std::int64_t need = (length + kPageTokens - 1) / kPageTokens;
        ASSERT_TRUE(cache.make_room(need));
        list.make_room(need, kPages);
        store(cache, key, prefix);
        list.insert(key, prefix);
      } else if (rng.below(20) == 0) {
        const std::int64_t pages = rng.between(0, kPages + 1);
        EXPECT_EQ(cache.make_room(pages), pages <= kPages);
        list.make_room(pages, kPages);
      } else {
        const std::int64_t most = rng.below(2) == 0 ? length : rng.between(0, length);
        const PrefixPeek peek = cache.peek(key, prefix, most);
        const PrefixHit hit = cache.find(key, prefix, most);
        EXPECT_EQ(peek.length, hit.length);
        EXPECT_EQ(peek.reclaimable, hit.length / kPageTokens);
        ASSERT_EQ(hit.length, list.find(key, prefix, most));
        if (hit.length > 0) expect_right(hit, prefix);
      }
      ASSERT_EQ(cache.stats().nodes, list.size());
      ASSERT_EQ(cache.stats().bytes, list.bytes());
      ASSERT_LE(cache.stats().bytes, limit);
      ASSERT_EQ(pool_.free_count(), kPages - list.pages());
      ASSERT_EQ(cache.reclaimable_pages(), list.pages());
    }
    EXPECT_EQ(cache.stats().digest_mismatches, 0u);
    cache.clear();
    EXPECT_EQ(cache.stats().bytes, 0);
    EXPECT_EQ(pool_.free_count(), kPages);
  }
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
