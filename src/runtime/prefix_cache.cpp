#include "runtime/prefix_cache.h"

#include <algorithm>

#include <xxhash.h>

#include "base/check.h"

namespace plumb {
namespace {

std::uint64_t prefix_hash(const std::string& key, std::span<const std::int32_t> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), XXH3_64bits(key.data(), key.size()));
}

std::uint64_t tail_digest_of(const std::vector<float>& tail) {
  return XXH3_64bits(tail.data(), tail.size() * sizeof(float));
}

std::int64_t node_bytes(const PrefixNode& node) {
  return static_cast<std::int64_t>(node.tail.size() * sizeof(float) + node.tokens.size() * sizeof(std::int32_t));
}

}  // namespace

PrefixCache::PrefixCache(PagePool& pool, std::int64_t byte_limit) : pool_(pool), byte_limit_(byte_limit) {}

PrefixCache::~PrefixCache() { clear(); }

void PrefixCache::clear() {
  while (!nodes_.empty()) drop(nodes_.begin());
}

bool PrefixCache::intact(const PrefixNode& node) const {
  if (tail_digest_of(node.tail) != node.tail_digest) return false;
  for (std::size_t i = 0; i < node.pages.size(); ++i)
    if (pool_.current_digest(node.pages[i]) != node.page_digests[i]) return false;
  return true;
}

PrefixCache::Nodes::iterator PrefixCache::locate(const std::string& key, std::span<const std::int32_t> prefix) {
  const auto [first, last] = by_hash_.equal_range(prefix_hash(key, prefix));
  for (auto it = first; it != last; ++it)
    if (it->second->key == key && std::ranges::equal(it->second->tokens, prefix)) return it->second;
  return nodes_.end();
}

const PrefixNode* PrefixCache::find(const std::string& key, std::span<const std::int32_t> tokens,
                                    std::int64_t max_length) {
  max_length = std::min(max_length, static_cast<std::int64_t>(tokens.size()));
  // Lengths in descending order; a dropped node may change the map, so each round looks its next length up again.
  for (auto it = length_counts_.upper_bound(max_length); it != length_counts_.begin();) {
    const std::int64_t length = std::prev(it)->first;
    const auto node = locate(key, tokens.first(static_cast<std::size_t>(length)));
    if (node != nodes_.end()) {
      if (intact(*node)) {
        nodes_.splice(nodes_.begin(), nodes_, node);
        return &nodes_.front();
      }
      ++digest_mismatches_;
      drop(node);
    }
    it = length_counts_.lower_bound(length);
  }
  return nullptr;
}

void PrefixCache::insert(const std::string& key, std::span<const std::int32_t> tokens, std::span<const int> pages,
                         const StateLayout& layout, const SequenceState& state) {
  CHECK(static_cast<std::int64_t>(tokens.size()) == state.length);
  CHECK(static_cast<std::int64_t>(pages.size()) == (state.length + kPageTokens - 1) / kPageTokens);
  if (tokens.empty()) return;
  if (const auto node = locate(key, tokens); node != nodes_.end()) {
    nodes_.splice(nodes_.begin(), nodes_, node);
    return;
  }
  PrefixNode node{.key = key,
                  .tokens = {tokens.begin(), tokens.end()},
                  .pages = {pages.begin(), pages.end()},
                  .tail = std::vector<float>(static_cast<std::size_t>(layout.tail_floats()))};
  if (node_bytes(node) > byte_limit_) return;
  while (bytes_ + node_bytes(node) > byte_limit_) drop(std::prev(nodes_.end()));
  save_tail(layout, state, node.tail);
  node.tail_digest = tail_digest_of(node.tail);
  const auto full_pages = static_cast<std::size_t>(state.length / kPageTokens);
  for (std::size_t i = 0; i < node.pages.size(); ++i) {
    pool_.share(node.pages[i]);
    node.page_digests.push_back(i < full_pages ? pool_.sealed_digest(node.pages[i])
                                               : pool_.current_digest(node.pages[i]));
  }
  bytes_ += node_bytes(node);
  nodes_.push_front(std::move(node));
  by_hash_.emplace(prefix_hash(key, tokens), nodes_.begin());
  ++length_counts_[state.length];
}

bool PrefixCache::make_room(std::int64_t page_count) {
  while (pool_.free_count() < page_count && !nodes_.empty()) drop(std::prev(nodes_.end()));
  return pool_.free_count() >= page_count;
}

void PrefixCache::drop(Nodes::iterator node) {
  for (const int page : node->pages) pool_.release(page);
  bytes_ -= node_bytes(*node);
  const auto count = length_counts_.find(static_cast<std::int64_t>(node->tokens.size()));
  if (--count->second == 0) length_counts_.erase(count);
  const auto [first, last] = by_hash_.equal_range(prefix_hash(node->key, node->tokens));
  for (auto it = first; it != last; ++it) {
    if (it->second != node) continue;
    by_hash_.erase(it);
    break;
  }
  nodes_.erase(node);
}

}  // namespace plumb
