#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/state.h"
#include "runtime/page_pool.h"

namespace plumb {

/// What a stored prefix gives to a sequence. `length` 0: nothing is stored. Valid until the cache is used again.
struct PrefixHit {
  std::int64_t length = 0;
  std::vector<int> pages;       // of positions [0, length); the last one is partly filled when length % 128 != 0
  std::span<const float> tail;  // state after `length` positions
};

/// What a hit would give, not yet checked.
struct PrefixPeek {
  std::int64_t length = 0;
  std::int64_t reclaimable = 0;  // of its full pages, those that make_room could free
};

struct PrefixCacheStats {
  std::int64_t nodes = 0;  // stored prefixes
  std::int64_t bytes = 0;  // of tails and tokens
  std::int64_t pages = 0;  // of the pool, held by this cache and possibly others
  std::uint64_t digest_mismatches = 0;
  std::uint64_t evictions = 0;
};

/// Stored prefixes in a radix tree, one tree for each key (the settings under which the state was computed).
///
/// An edge holds the tokens between two nodes and the sealed pages whose last position lies on it, so that prefixes
/// share what they have in common. A prefix is stored as a tail at the node where it ends, with the partly filled page
/// there, if any, which nobody writes to again. A node without a tail only marks where two prefixes part: since a hit
/// starts at a tail and recomputes the rest, prefixes may part at any offset of a group and still share no open group.
///
/// Two limits. Bytes (tails and tokens): the least recently used tail goes, wherever it stands; what is below does not
/// need it. Pages (of the pool): the least recently used leaf goes, because inner pages belong to what is below as
/// well.
///
/// Digests of pages and tail are taken when they are stored and checked on every hit. Not for use from two threads.
class PrefixCache {
 public:
  PrefixCache(PagePool& pool, std::int64_t byte_limit);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// The longest stored prefix of `tokens` of at most `max_length` tokens under `key`. What no longer matches its
  /// digest is dropped, with everything below it, and counted.
  PrefixHit find(const std::string& key, std::span<const std::int32_t> tokens, std::int64_t max_length);

  /// The length that `find` would give if no digest fails. Not a use.
  PrefixPeek peek(const std::string& key, std::span<const std::int32_t> tokens, std::int64_t max_length) const;

  /// Stores the state at state.length = number of tokens; `pages` are those of its positions. The pages of positions
  /// that are stored already are not taken again; a prefix that is stored already is only refreshed; one whose tail and
  /// tokens exceed the byte limit is not stored.
  void insert(const std::string& key, std::span<const std::int32_t> tokens, std::span<const int> pages,
              const StateLayout& layout, const SequenceState& state);

  /// Drops least recently used leaves until the pool has `page_count` free pages. False, and nothing dropped, when that
  /// would not do.
  bool make_room(std::int64_t page_count);
  /// Pages of the pool that only this cache owns: those that make_room could free.
  std::int64_t reclaimable_pages() const;

  void clear();
  const PrefixCacheStats& stats() const { return stats_; }

 private:
  struct Node;
  using Recency = std::list<Node*>;  // front: most recently used
  struct Tail {
    std::vector<float> floats;
    std::uint64_t digest = 0;
    int page = -1;  // the partly filled page at its end
    std::uint64_t page_digest = 0;
    Recency::iterator recency;
  };
  struct Node {
    Node* parent = nullptr;
    std::vector<std::int32_t> tokens;                        // of the edge from the parent
    std::int64_t end = 0;                                    // positions from the root
    std::map<std::int32_t, std::unique_ptr<Node>> children;  // by first token
    std::vector<int> pages;                                  // sealed, last position on this edge
    std::vector<std::uint64_t> page_digests;
    std::unique_ptr<Tail> tail;

    std::int64_t begin() const { return end - static_cast<std::int64_t>(tokens.size()); }
  };

  Node& reach(Node& root, std::span<const std::int32_t> tokens, std::span<const int> pages);
  Node& append(Node& parent, std::span<const std::int32_t> tokens, std::span<const int> pages);
  Node& split(Node& node, std::int64_t at);
  void set_tail(Node& node, int open_page, const StateLayout& layout, const SequenceState& state);
  void refresh(Node& node);
  Node* deepest(const std::string& key, std::span<const std::int32_t> tokens, std::int64_t max_length) const;
  bool drop_damage(Node& node);
  void drop_tail(Node& node);
  void drop_below(Node& node);
  void prune(Node& node);
  void merge_with_child(Node& node);
  void share_page(int page);
  void release_page(int page);
  Node* leaf_to_evict() const;
  template <class Visit>
  static void for_each_page(const Node& node, Visit&& visit);

  PagePool& pool_;
  std::int64_t byte_limit_;
  std::map<std::string, std::unique_ptr<Node>> roots_;
  Recency recency_;  // nodes with a tail
  PrefixCacheStats stats_;
};

}  // namespace plumb
