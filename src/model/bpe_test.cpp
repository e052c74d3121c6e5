#include "model/bpe.h"

#include <chrono>
#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace plumb {
namespace {

using Ids = std::vector<std::int32_t>;

struct World {
  std::vector<std::string> tokens;
  std::vector<Merge> merges;
};

// The 256 bytes, and `count` products of random pairs over few letters, so that merges compete for the same bytes.
World random_world(Rng& rng, std::size_t count) {
  World world;
  for (int byte = 0; byte < 256; ++byte) world.tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<std::int32_t> pool{'a', 'b', 'c'};
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  while (world.merges.size() < count) {
    const std::int32_t left = pool[rng.below(pool.size())], right = pool[rng.below(pool.size())];
    if (!pairs.insert({left, right}).second) continue;
    const std::string text = world.tokens[left] + world.tokens[right];
    const auto known = std::find(world.tokens.begin(), world.tokens.end(), text);
    const auto product = static_cast<std::int32_t>(known - world.tokens.begin());
    if (known == world.tokens.end()) {
      world.tokens.push_back(text);
      pool.push_back(product);
    }
    world.merges.push_back({left, right, product});
  }
  return world;
}

// The definition: look at every pair, merge the leftmost one of lowest rank, start again.
Ids merged_by_definition(const World& world, std::string_view piece) {
  Ids ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    std::size_t best = world.merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      for (std::size_t rank = 0; rank < best; ++rank)
        if (world.merges[rank].left == ids[i] && world.merges[rank].right == ids[i + 1]) best = rank, at = i;
    if (best == world.merges.size()) return ids;
    ids[at] = world.merges[best].product;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, EqualsTheDefinitionOnShortAndLongPieces) {
  Rng rng{5};
  for (int round = 0; round < 40; ++round) {
    const World world = random_world(rng, 5 + rng.below(60));
    const Bpe bpe(world.tokens, world.merges);
    Bpe::Scratch scratch;
    for (int i = 0; i < 60; ++i) {
      std::string piece;
      for (std::uint64_t n = 1 + rng.below(i < 40 ? 20 : 150); n > 0; --n)
        piece.push_back(static_cast<char>('a' + rng.below(rng.below(8) == 0 ? 4 : 3)));
      Ids ids{-7};
      bpe.append_ids(piece, scratch, ids);
      Ids expected = merged_by_definition(world, piece);
      expected.insert(expected.begin(), -7);
      ASSERT_EQ(ids, expected) << "round " << round << ": " << piece;
    }
  }
}

// A word of the vocabulary is one token only where the merges lead to it.
TEST(Bpe, AWordThatNoMergeReachesIsNotUsed) {
  World world;
  for (int byte = 0; byte < 256; ++byte) world.tokens.emplace_back(1, static_cast<char>(byte));
  world.tokens.insert(world.tokens.end(), {"ab", "bc", "abc", "xyz"});
  world.merges = {{'b', 'c', 257}, {'a', 'b', 256}, {256, 'c', 258}};
  const Bpe bpe(world.tokens, world.merges);
  Bpe::Scratch scratch;
  Ids ids;
  bpe.append_ids("abc", scratch, ids);
  bpe.append_ids("xyz", scratch, ids);
  EXPECT_EQ(ids, (Ids{'a', 257, 'x', 'y', 'z'}));
  EXPECT_EQ(bpe.find("abc"), 258);
  EXPECT_EQ(bpe.find("xyz"), 259);
  EXPECT_EQ(bpe.find("abcd"), -1);
}

// Merging in place would take 10^12 steps here, which is hours.
TEST(Bpe, AWordOfAMegabyteTakesSeconds) {
  constexpr std::size_t kBytes = 1'000'000;
  World world;
  for (int byte = 0; byte < 256; ++byte) world.tokens.emplace_back(1, static_cast<char>(byte));
  // a, aa, aaaa, ...: every level halves the word.
  std::int32_t last = 'a';
  for (int level = 0; level < 10; ++level) {
    const auto next = static_cast<std::int32_t>(world.tokens.size());
    world.tokens.push_back(world.tokens[last] + world.tokens[last]);
    world.merges.push_back({last, last, next});
    last = next;
  }
  const Bpe bpe(world.tokens, world.merges);
  Bpe::Scratch scratch;
  Ids ids;
  const auto start = std::chrono::steady_clock::now();
  bpe.append_ids(std::string(kBytes, 'a'), scratch, ids);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  Ids expected(kBytes / 1024, last);
  for (int level = 9; level >= 0; --level)  // 10^6 = 976 * 1024 + 576, and 576 = 512 + 64
    if (kBytes % 1024 >> level & 1) expected.push_back(level == 0 ? 'a' : 255 + level);
  EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace plumb
