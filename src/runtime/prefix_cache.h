#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/state.h"
#include "runtime/page_pool.h"

namespace plumb {

/// A stored prefix: the pages of its positions (the last one may be partly filled and is never written again) and the
/// tail at its end. Digests are taken when it is stored and checked on every hit.
struct PrefixNode {
  std::string key;                   // settings under which the state was computed
  std::vector<std::int32_t> tokens;  // all tokens of the prefix
  std::vector<int> pages;            // shared with sequences and other nodes
  std::vector<float> tail;
  std::vector<std::uint64_t> page_digests;
  std::uint64_t tail_digest = 0;
};

/// Stored prefixes, found by exact tokens and settings, least recently used out first. Not for use from two threads.
class PrefixCache {
 public:
  /// Holds at most `byte_limit` bytes of tails and tokens; pages count against the pool.
  PrefixCache(PagePool& pool, std::int64_t byte_limit);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// The longest stored prefix of `tokens` of at most `max_length` tokens under `key`, or null. A node whose digest no
  /// longer matches is dropped and counted. The pointer is valid until the next call.
  const PrefixNode* find(const std::string& key, std::span<const std::int32_t> tokens, std::int64_t max_length);

  /// Stores the state at state.length; `pages` are those of its positions. A prefix that is stored already is only
  /// refreshed; one larger than the limit is not stored.
  void insert(const std::string& key, std::span<const std::int32_t> tokens, std::span<const int> pages,
              const StateLayout& layout, const SequenceState& state);

  /// Drops least recently used nodes until the pool has `page_count` free pages; false when it cannot.
  bool make_room(std::int64_t page_count);

  void clear();
  std::int64_t node_count() const { return static_cast<std::int64_t>(nodes_.size()); }
  std::uint64_t digest_mismatches() const { return digest_mismatches_; }

 private:
  using Nodes = std::list<PrefixNode>;  // front: most recently used
  Nodes::iterator locate(const std::string& key, std::span<const std::int32_t> prefix);
  bool intact(const PrefixNode& node) const;
  void drop(Nodes::iterator node);

  PagePool& pool_;
  std::int64_t byte_limit_;
  std::int64_t bytes_ = 0;
  std::uint64_t digest_mismatches_ = 0;
  Nodes nodes_;
  std::unordered_multimap<std::uint64_t, Nodes::iterator> by_hash_;
  std::map<std::int64_t, std::int64_t> length_counts_;  // how many nodes have this many tokens
};

}  // namespace plumb
