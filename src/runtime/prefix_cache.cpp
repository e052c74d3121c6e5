#include "runtime/prefix_cache.h"

#include <algorithm>
#include <utility>

#include <xxhash.h>

#include "base/check.h"

namespace plumb {
namespace {

std::uint64_t digest_of(const std::vector<float>& floats) {
  return XXH3_64bits(floats.data(), floats.size() * sizeof(float));
}

std::int64_t tail_bytes(std::size_t floats) { return static_cast<std::int64_t>(floats * sizeof(float)); }
std::int64_t token_bytes(std::size_t tokens) { return static_cast<std::int64_t>(tokens * sizeof(std::int32_t)); }

std::int64_t common_length(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

PrefixCache::PrefixCache(PagePool& pool, std::int64_t byte_limit) : pool_(pool), byte_limit_(byte_limit) {}

PrefixCache::~PrefixCache() { clear(); }

void PrefixCache::clear() {
  while (!recency_.empty()) drop_tail(*recency_.back());
}

template <class Visit>
void PrefixCache::for_each_page(const Node& node, Visit&& visit) {
  for (const int page : node.pages) visit(page);
  if (node.tail != nullptr && node.tail->page >= 0) visit(node.tail->page);
}

// The deepest node with a tail on the path of `tokens`, of at most max_length positions.
PrefixCache::Node* PrefixCache::deepest(const std::string& key, std::span<const std::int32_t> tokens,
                                        std::int64_t max_length) const {
  const auto root = roots_.find(key);
  if (root == roots_.end()) return nullptr;
  const auto limit = std::clamp<std::int64_t>(max_length, 0, static_cast<std::int64_t>(tokens.size()));
  Node* node = root->second.get();
  Node* found = nullptr;
  while (node->end < limit) {
    const auto rest = tokens.subspan(static_cast<std::size_t>(node->end));
    const auto child = node->children.find(rest.front());
    if (child == node->children.end()) break;
    node = child->second.get();
    if (node->end > limit || common_length(node->tokens, rest) < static_cast<std::int64_t>(node->tokens.size())) break;
    if (node->tail != nullptr) found = node;
  }
  return found;
}

PrefixHit PrefixCache::find(const std::string& key, std::span<const std::int32_t> tokens, std::int64_t max_length) {
  Node* node = deepest(key, tokens, max_length);
  while (node != nullptr && drop_damage(*node)) node = deepest(key, tokens, max_length);
  if (node == nullptr) return {};
  refresh(*node);
  PrefixHit hit{.length = node->end,
                .pages = std::vector<int>(static_cast<std::size_t>(node->end / kPageTokens)),
                .tail = node->tail->floats};
  for (const Node* above = node; above != nullptr; above = above->parent)
    std::ranges::copy(above->pages, hit.pages.begin() + above->begin() / kPageTokens);
  if (node->tail->page >= 0) hit.pages.push_back(node->tail->page);
  return hit;
}

PrefixPeek PrefixCache::peek(const std::string& key, std::span<const std::int32_t> tokens,
                             std::int64_t max_length) const {
  const Node* node = deepest(key, tokens, max_length);
  if (node == nullptr) return {};
  PrefixPeek peek{.length = node->end};
  for (; node != nullptr; node = node->parent)
    peek.reclaimable += std::ranges::count_if(node->pages, [&](int page) { return pool_.owner_count(page) == 1; });
  return peek;
}

// Checks what a hit at `node` would use. True when something was damaged: it is dropped then, with what depends on it.
bool PrefixCache::drop_damage(Node& node) {
  const Tail& tail = *node.tail;
  if (digest_of(tail.floats) != tail.digest ||
      (tail.page >= 0 && pool_.current_digest(tail.page) != tail.page_digest)) {
    ++stats_.digest_mismatches;
    drop_tail(node);
    return true;
  }
  for (Node* above = &node; above != nullptr; above = above->parent)
    for (std::size_t i = 0; i < above->pages.size(); ++i)
      if (pool_.current_digest(above->pages[i]) != above->page_digests[i]) {
        ++stats_.digest_mismatches;
        drop_below(*above);
        return true;
      }
  return false;
}

void PrefixCache::insert(const std::string& key, std::span<const std::int32_t> tokens, std::span<const int> pages,
                         const StateLayout& layout, const SequenceState& state) {
  CHECK(static_cast<std::int64_t>(tokens.size()) == state.length);
  CHECK(static_cast<std::int64_t>(pages.size()) == (state.length + kPageTokens - 1) / kPageTokens);
  if (tokens.empty()) return;
  Node* stored = deepest(key, tokens, state.length);
  if (stored != nullptr && stored->end == state.length) return refresh(*stored);
  const std::int64_t most = tail_bytes(static_cast<std::size_t>(layout.tail_floats())) + token_bytes(tokens.size());
  if (most > byte_limit_) return;
  while (stats_.bytes + most > byte_limit_) {
    ++stats_.evictions;
    drop_tail(*recency_.back());
  }
  auto& root = roots_[key];
  if (root == nullptr) root = std::make_unique<Node>();
  Node& node = reach(*root, tokens, pages);
  set_tail(node, state.length % kPageTokens == 0 ? -1 : pages.back(), layout, state);
}

// The node at which `tokens` end, made if need be.
PrefixCache::Node& PrefixCache::reach(Node& root, std::span<const std::int32_t> tokens, std::span<const int> pages) {
  Node* node = &root;
  while (node->end < static_cast<std::int64_t>(tokens.size())) {
    const auto rest = tokens.subspan(static_cast<std::size_t>(node->end));
    const auto child = node->children.find(rest.front());
    if (child == node->children.end()) return append(*node, rest, pages);
    const std::int64_t common = common_length(child->second->tokens, rest);
    node = &split(*child->second, node->end + common);
  }
  return *node;
}

PrefixCache::Node& PrefixCache::append(Node& parent, std::span<const std::int32_t> tokens, std::span<const int> pages) {
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->tokens.assign(tokens.begin(), tokens.end());
  node->end = parent.end + static_cast<std::int64_t>(tokens.size());
  for (std::int64_t i = parent.end / kPageTokens; i < node->end / kPageTokens; ++i) {
    const int page = pages[static_cast<std::size_t>(i)];
    share_page(page);
    node->pages.push_back(page);
    node->page_digests.push_back(pool_.current_digest(page));
  }
  stats_.bytes += token_bytes(tokens.size());
  return *(parent.children[tokens.front()] = std::move(node));
}

// Cuts the edge to `node` at position `at`; gives the upper part, which is `node` itself when it ends there.
PrefixCache::Node& PrefixCache::split(Node& node, std::int64_t at) {
  CHECK(node.begin() < at && at <= node.end);
  if (at == node.end) return node;
  const auto upper_tokens = at - node.begin();
  const auto upper_pages = at / kPageTokens - node.begin() / kPageTokens;
  auto upper = std::make_unique<Node>();
  upper->parent = node.parent;
  upper->end = at;
  const auto move_front = [](auto& from, auto& to, std::int64_t count) {
    to.assign(from.begin(), from.begin() + count);
    from.erase(from.begin(), from.begin() + count);
  };
  move_front(node.tokens, upper->tokens, upper_tokens);
  move_front(node.pages, upper->pages, upper_pages);
  move_front(node.page_digests, upper->page_digests, upper_pages);
  node.parent = upper.get();
  auto& slot = upper->parent->children[upper->tokens.front()];
  upper->children[node.tokens.front()] = std::move(slot);
  return *(slot = std::move(upper));
}

void PrefixCache::set_tail(Node& node, int open_page, const StateLayout& layout, const SequenceState& state) {
  CHECK(node.tail == nullptr && node.end == state.length);
  auto tail = std::make_unique<Tail>();
  tail->floats.resize(static_cast<std::size_t>(layout.tail_floats()));
  save_tail(layout, state, tail->floats);
  tail->digest = digest_of(tail->floats);
  if (open_page >= 0) {
    share_page(open_page);
    tail->page = open_page;
    tail->page_digest = pool_.current_digest(open_page);
  }
  recency_.push_front(&node);
  tail->recency = recency_.begin();
  node.tail = std::move(tail);
  stats_.bytes += tail_bytes(node.tail->floats.size());
  ++stats_.nodes;
}

void PrefixCache::refresh(Node& node) { recency_.splice(recency_.begin(), recency_, node.tail->recency); }

bool PrefixCache::make_room(std::int64_t page_count) {
  if (pool_.free_count() >= page_count) return true;
  if (pool_.free_count() + reclaimable_pages() < page_count) return false;
  while (pool_.free_count() < page_count) {
    ++stats_.evictions;
    drop_tail(*leaf_to_evict());
  }
  return true;
}

std::int64_t PrefixCache::reclaimable_pages() const {
  std::int64_t count = 0;
  std::vector<const Node*> open;
  for (const auto& [key, root] : roots_) open.push_back(root.get());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for_each_page(*node, [&](int page) { count += pool_.owner_count(page) == 1; });
    for (const auto& [token, child] : node->children) open.push_back(child.get());
  }
  return count;
}

// The least recently used leaf that gives a page back. When no leaf does (running sequences still hold their pages),
// the least recently used one: it uncovers what is above.
PrefixCache::Node* PrefixCache::leaf_to_evict() const {
  Node* fallback = nullptr;
  for (auto it = recency_.rbegin(); it != recency_.rend(); ++it) {
    if (!(*it)->children.empty()) continue;
    bool frees = false;
    for_each_page(**it, [&](int page) { frees |= pool_.owner_count(page) == 1; });
    if (frees) return *it;
    if (fallback == nullptr) fallback = *it;
  }
  CHECK(fallback != nullptr);
  return fallback;
}

void PrefixCache::drop_tail(Node& node) {
  if (node.tail->page >= 0) release_page(node.tail->page);
  recency_.erase(node.tail->recency);
  stats_.bytes -= tail_bytes(node.tail->floats.size());
  --stats_.nodes;
  node.tail.reset();
  prune(node);
}

// Drops every prefix that ends at or below `node`.
void PrefixCache::drop_below(Node& node) {
  std::vector<Node*> below{&node};
  for (std::size_t i = 0; i < below.size(); ++i)
    for (const auto& [token, child] : below[i]->children) below.push_back(child.get());
  // Nodes without a tail go or merge as the others do; one with a tail stays until its turn. Those below come first.
  std::erase_if(below, [](const Node* each) { return each->tail == nullptr; });
  for (auto it = below.rbegin(); it != below.rend(); ++it) drop_tail(**it);
}

// Every node but a root has a tail or parts two prefixes: removes what `node` and those above it no longer need.
void PrefixCache::prune(Node& node) {
  if (node.tail != nullptr || node.children.size() > 1) return;
  Node* parent = node.parent;
  if (node.children.size() == 1) {
    if (parent != nullptr) merge_with_child(node);
    return;
  }
  if (parent == nullptr) {
    std::erase_if(roots_, [&](const auto& entry) { return entry.second.get() == &node; });
    return;
  }
  for (const int page : node.pages) release_page(page);
  stats_.bytes -= token_bytes(node.tokens.size());
  parent->children.erase(node.tokens.front());
  prune(*parent);
}

void PrefixCache::share_page(int page) {
  pool_.share(page);
  ++stats_.pages;
}

void PrefixCache::release_page(int page) {
  pool_.release(page);
  --stats_.pages;
}

// The only child takes the edge over; `node` is gone afterwards.
void PrefixCache::merge_with_child(Node& node) {
  std::unique_ptr<Node> child = std::move(node.children.begin()->second);
  const auto put_before = [](auto& front, auto& back) { back.insert(back.begin(), front.begin(), front.end()); };
  put_before(node.tokens, child->tokens);
  put_before(node.pages, child->pages);
  put_before(node.page_digests, child->page_digests);
  child->parent = node.parent;
  auto& slot = node.parent->children[node.tokens.front()];
  slot = std::move(child);
}

}  // namespace plumb
