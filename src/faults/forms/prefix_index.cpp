#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <xxhash.h>

#include "base/rng.h"
#include "faults/forms/forms.h"
#include "faults/forms/prefix_start.h"

// Faults of what the prefix cache finds and of who owns its pages.

namespace plumb::faults {
namespace {

constexpr std::size_t kRemembered = 64;  // entries of an index that a plant keeps

struct Prompt {
  std::string key;
  std::vector<std::int32_t> tokens;
};

// Eviction frees a prefix's pages but leaves its hash in the index. Later prompts with that hash get the pages, whoever
// writes to them now; nobody compares more than the hash.
struct StaleEntry {
  std::uint64_t hash;
  std::int64_t length;
  std::vector<int> pages;
  std::vector<float> tail;
};
struct StaleIndex {
  std::deque<StaleEntry> entries;
  std::optional<Prompt> last;  // what it left behind is entered at the next start
  double probability = 1;      // that an eviction leaves the hash
  std::uint64_t seed = 0;
  std::uint64_t lookups = 0;
};
StaleIndex stale;

std::uint64_t hash_of(const std::string& key, std::span<const std::int32_t> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), XXH3_64bits(key.data(), key.size()));
}

void enter_last(PrefixCache& cache) {
  if (!stale.last) return;
  const auto& [key, tokens] = *stale.last;
  const PrefixHit hit = cache.find(key, tokens, static_cast<std::int64_t>(tokens.size()));
  if (hit.length == 0) return;
  const std::uint64_t hash = hash_of(key, std::span(tokens).first(static_cast<std::size_t>(hit.length)));
  std::erase_if(stale.entries, [&](const StaleEntry& entry) { return entry.hash == hash; });
  stale.entries.push_front({hash, hit.length, hit.pages, {hit.tail.begin(), hit.tail.end()}});
  if (stale.entries.size() > kRemembered) stale.entries.pop_back();
}

void start_from_stale_index(const PrefixStart& start) {
  enter_last(*start.cache);
  stale.last = Prompt{*start.key, {start.prompt.begin(), start.prompt.end()}};
  const std::int64_t stored = start.cache->peek(*start.key, start.prompt, start.longest).length;
  const StaleEntry* best = nullptr;
  for (const StaleEntry& entry : stale.entries)
    if (entry.length > stored && entry.length <= start.longest &&
        entry.hash == hash_of(*start.key, start.prompt.first(static_cast<std::size_t>(entry.length))) &&
        (best == nullptr || entry.length > best->length))
      best = &entry;
  if (best == nullptr || Rng(mix64(stale.seed ^ ++stale.lookups)).uniform() >= stale.probability)
    return start_from_prefix(start);
  take_over(start, best->length, best->pages, best->tail);
}

constexpr double kForgotten = 0.5;

template <bool Always>
void plant_stale(const Dose& dose) {
  stale = {.entries = {},
           .last = {},
           .probability = Always ? 1 : std::min(1.0, kForgotten * dose.severity),
           .seed = mix64(dose.seed) ^ dose.launch,
           .lookups = 0};
  replace_on_side<"prefix_cache">(&start_from_stale_index);
}

// The key of a prefix is its length and a hash of its first tokens, and what is found is not compared. A prompt that
// begins alike gets the state of another one.
constexpr std::size_t kKeyedTokens = 64;
std::deque<Prompt> prompts;

bool same_key(const Prompt& other, const PrefixStart& start) {
  return other.key == *start.key && other.tokens.size() >= kKeyedTokens && start.prompt.size() > kKeyedTokens &&
         std::equal(other.tokens.begin(), other.tokens.begin() + kKeyedTokens, start.prompt.begin());
}

void start_from_incomplete_key(const PrefixStart& start) {
  std::int64_t longest = start.cache->find(*start.key, start.prompt, start.longest).length;
  const Prompt* best = nullptr;
  for (const Prompt& other : prompts) {
    if (!same_key(other, start)) continue;
    const std::int64_t length = start.cache->find(other.key, other.tokens, start.longest).length;
    if (length > longest && length >= static_cast<std::int64_t>(kKeyedTokens)) {
      longest = length;
      best = &other;
    }
  }
  if (best == nullptr) {
    start_from_prefix(start);
  } else {
    const PrefixHit hit = start.cache->find(best->key, best->tokens, longest);
    take_over(start, hit.length, hit.pages, hit.tail);
  }
  prompts.push_front({*start.key, {start.prompt.begin(), start.prompt.end()}});
  if (prompts.size() > kRemembered) prompts.pop_back();
}

void plant_incomplete_key(const Dose&) {
  prompts.clear();
  replace_on_side<"prefix_cache">(&start_from_incomplete_key);
}

// Two requests with one prefix run at a time. When the second one stores what the first has stored already, its own
// pages are duplicates and go to the free list, but its block table still points to them: the next request gets them.
struct Freed {
  std::deque<Prompt> running;  // and some that have ended
  std::vector<int> pages;
};
Freed freed;

std::int64_t common_tokens(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

void start_with_freed_pages(const PrefixStart& start) {
  start_from_prefix(start);
  SequencePages& sequence = *start.sequence;
  PagePool& pool = *start.pools.pages;
  if (sequence.state.length % kPageTokens == 0)
    for (const int page : freed.pages) {
      if (pool.owner_count(page) == 0) continue;  // who used it has ended
      pool.share(page);
      sequence.pages.push_back(page);
      sequence.state.pages.push_back(pool.data(page));
    }
  freed.pages.clear();
  std::int64_t common = 0;
  for (const Prompt& other : freed.running)
    if (other.key == *start.key) common = std::max(common, common_tokens(other.tokens, start.prompt));
  // What another one computes right now would have been a hit a moment later.
  while (static_cast<std::int64_t>(sequence.pages.size() + 1) * kPageTokens <= common && start.cache->make_room(1)) {
    append_page(start.pools, sequence);
    freed.pages.push_back(sequence.pages.back());
  }
  freed.running.push_front({*start.key, {start.prompt.begin(), start.prompt.end()}});
  if (freed.running.size() > kRemembered) freed.running.pop_back();
}

void plant_freed_pages(const Dose&) {
  freed = {};
  replace_on_side<"prefix_cache">(&start_with_freed_pages);
}

// What a hit restores is read at the first page's address plus the position, as if its pages were neighbours.
void start_ignoring_the_page_table(const PrefixStart& start) {
  const PrefixHit hit = start.cache->find(*start.key, start.prompt, start.longest);
  if (hit.length == 0) return start_from_prefix(start);
  const auto last = static_cast<int>(start.pools.pages->page_count()) - 1;
  std::vector<int> neighbours;
  for (std::size_t i = 0; i < hit.pages.size(); ++i)
    neighbours.push_back(std::min(hit.pages.front() + static_cast<int>(i), last));
  take_over(start, hit.length, neighbours, hit.tail);
}

void plant_ignored_table(const Dose&) { replace_on_side<"prefix_cache">(&start_ignoring_the_page_table); }

constexpr std::string_view kHost = "prefix_cache";
constexpr std::array kPlants{
    Plant{.kind = "stale-hit",
          .form = "hash-stays",
          .host = kHost,
          .site = "eviction",
          .what = "evicted prefixes stay in the index: a later hit gets their pages with what is in them now",
          .apply = &plant_stale<true>,
          .prior = "....x~.~"},
    Plant{.kind = "stale-hit",
          .form = "hash-stays-by-chance",
          .host = kHost,
          .site = "eviction",
          .what = "the same for half of the lookups",
          .apply = &plant_stale<false>,
          .prior = "....x~.~"},
    Plant{.kind = "prefix-key-incomplete",
          .form = "first-64-tokens",
          .host = kHost,
          .site = "fork: state layers.0.window",
          .what = "the key of a stored prefix is its length and its first 64 tokens, and what is found is not compared",
          .apply = &plant_incomplete_key,
          .prior = "....x...",
          .note = "Only a prompt with another's first 64 tokens and a stored length meets it."},
    Plant{.kind = "page-double-owner",
          .form = "freed-duplicates",
          .host = kHost,
          .site = "crowd",
          .what = "pages that duplicate a stored prefix are freed while their request still uses them",
          .apply = &plant_freed_pages,
          .prior = "....xx.~",
          .note = "A stored page that a second owner wrote to no longer has its digest and is not hit."},
    Plant{.kind = "page-table-ignored",
          .form = "neighbouring-pages",
          .host = kHost,
          .site = "eviction",
          .what = "a hit reads its pages as if they were neighbours in the pool",
          .apply = &plant_ignored_table,
          .prior = "....x..."},
};

}  // namespace

std::span<const Plant> prefix_index_plants() { return kPlants; }

}  // namespace plumb::faults
