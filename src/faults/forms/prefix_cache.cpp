#include <algorithm>
#include <array>

#include "base/rng.h"
#include "faults/forms/forms.h"
#include "faults/forms/prefix_start.h"

namespace plumb::faults {
namespace {

// A hit restores the main rows and leaves the indexer's behind: the restored part has index keys of zero.
void restore_without_index_rows(const PrefixStart& start) {
  start_from_copied_prefix(start);
  const SequenceState& state = start.sequence->state;
  for (std::int64_t i = 0; i * kPageTokens < state.length; ++i)
    for (const StateKind& kind : start.pools.layout->kinds())
      if (kind.home == Home::page && kind.name.ends_with(".index_rows"))
        std::fill_n(state.pages[static_cast<std::size_t>(i)] + kind.offset, kind.rows * kind.width, 0.0f);
}

// The tokens behind the last closed group are not saved: the group that is open at the cut starts empty.
void restore_without_remainder(const PrefixStart& start) {
  start_from_prefix(start);
  clear_open(*start.pools.layout, start.sequence->state, is_remainder);
}

// The first half of the last closed group, which overlapping compressors need for the next one, is not saved.
void restore_without_overlap(const PrefixStart& start) {
  start_from_prefix(start);
  clear_open(*start.pools.layout, start.sequence->state, is_overlap);
}

// The pool keeps what the page held behind the cut, instead of rows that are not there yet. Rows are addressed by
// position and written before they become visible, so nothing reads them.
void restore_with_rows_behind_the_cut(const PrefixStart& start) {
  start_from_prefix(start);
  const SequencePages& sequence = *start.sequence;
  const std::int64_t length = sequence.state.length;
  if (length % kPageTokens == 0) return;
  float* page = sequence.state.pages[static_cast<std::size_t>(length / kPageTokens)];
  for (const StateKind& kind : start.pools.layout->kinds()) {
    if (kind.home != Home::page) continue;
    const std::int64_t first = length % kPageTokens * kind.rows / kPageTokens;
    if (first == 0) continue;
    for (std::int64_t n = first; n < kind.rows; ++n)
      std::copy_n(page + kind.offset + (n - first) % first * kind.width, kind.width,
                  page + kind.offset + n * kind.width);
  }
}

// Window rows live in a per-request ring outside the content-addressed cache. A hit takes the ring as its last owner
// left it.
void restore_without_window(const PrefixStart& start) {
  start_cold(start);
  const std::int64_t length = start.cache->find(*start.key, start.prompt, start.longest).length;
  if (length == 0) return;
  ensure_window(start.pools, *start.sequence, std::max<std::int64_t>(0, length - (start.pools.layout->window() - 1)),
                length);
  const std::vector<float*> rings = start.sequence->state.window_pages;
  std::vector<std::vector<float>> left_behind;
  const auto floats = start.pools.window_pages->page_floats();
  for (float* ring : rings)
    left_behind.emplace_back(ring == nullptr ? std::vector<float>() : std::vector<float>(ring, ring + floats));
  start_from_prefix(start);
  // A hit that found no room is shorter, or none, and has other pages.
  for (std::size_t i = 0; i < rings.size(); ++i)
    if (rings[i] != nullptr &&
        std::ranges::find(start.sequence->state.window_pages, rings[i]) != start.sequence->state.window_pages.end())
      std::ranges::copy(left_behind[i], rings[i]);
}

// The last page of a prefix is copied while its writer is still at work: the rows of the last `behind` groups are what
// the new page held before. `coin`: each row by itself, else all of them.
struct Unsynced {
  bool coin = false;
  std::uint64_t seed = 0;
  std::uint64_t hits = 0;
};
Unsynced unsynced;
constexpr std::int64_t kRowsBehind = 8;

void copy_before_written(const PrefixStart& start) {
  PagePool& pool = *start.pools.pages;
  if (!start.cache->make_room(1)) return start_from_prefix(start);
  const int next = pool.take();
  const std::vector<float> before(pool.data(next), pool.data(next) + pool.page_floats());
  pool.release(next);
  start_from_copied_prefix(start);
  const std::int64_t length = start.sequence->state.length;
  if (length == 0) return;
  Rng rng(mix64(unsynced.seed ^ ++unsynced.hits));
  const auto last = static_cast<std::size_t>((length - 1) / kPageTokens);
  const std::int64_t in_page = length - static_cast<std::int64_t>(last) * kPageTokens;
  for (const StateKind& kind : start.pools.layout->kinds()) {
    if (kind.home != Home::page) continue;
    const std::int64_t end = in_page * kind.rows / kPageTokens;
    for (std::int64_t n = std::max<std::int64_t>(0, end - kRowsBehind); n < end; ++n) {
      if (unsynced.coin && rng.below(4) != 0) continue;
      const std::int64_t at = kind.offset + n * kind.width;
      std::copy_n(before.begin() + at, kind.width, pool.data(start.sequence->pages[last]) + at);
    }
  }
}

template <bool Coin>
void plant_unsynced(const Dose& dose) {
  unsynced = {.coin = Coin, .seed = mix64(dose.seed) ^ dose.launch, .hits = 0};
  replace_on_side<"prefix_cache">(&copy_before_written);
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"prefix_cache">(Side);
}

constexpr std::string_view kHost = "prefix_cache";
constexpr std::array kPlants{
    Plant{.kind = "cmp-state-not-cached",
          .form = "index-rows-left-behind",
          .host = kHost,
          .site = "hit: state layers.2.index_rows",
          .what = "a prefix hit restores the compressed rows but not the indexer's",
          .apply = &plant<&restore_without_index_rows>,
          .prior = "...xx...",
          .demo = true},
    Plant{.kind = "cmp-state-not-cached",
          .form = "empty-remainder",
          .host = kHost,
          .site = "hit: state layers.2.compressor.open_k",
          .what = "a prefix hit starts with an empty open group: the tokens behind the last closed one are not in it",
          .apply = &plant<&restore_without_remainder>,
          .prior = "...xx...",
          .note = "Turns end behind an answer; what is lost with their open group is not asked for."},
    Plant{.kind = "cmp-state-not-cached",
          .form = "zero-overlap",
          .host = kHost,
          .site = "hit: state layers.2.compressor.previous_k",
          .what = "a prefix hit starts without the half of the last group that the next one overlaps",
          .apply = &plant<&restore_without_overlap>,
          .prior = "...xx...",
          .note = "Turns begin with a marker; half a group there is not asked for."},
    Plant{.kind = "cmp-state-not-cached",
          .form = "rows-behind-the-cut",
          .host = kHost,
          .site = "none",
          .what = "a prefix hit keeps rows behind the cut in its last page",
          .apply = &plant<&restore_with_rows_behind_the_cut>,
          .prior = "...xx...",
          .note = "A decoy here: rows are addressed by position and written before they become visible."},
    Plant{.kind = "swa-not-cached",
          .form = "ring-of-last-owner",
          .host = kHost,
          .site = "hit: state layers.0.window",
          .what = "a prefix hit takes the window rows as the page's last owner left them",
          .apply = &plant<&restore_without_window>,
          .prior = "...xx...",
          .note = "Turns seldom ask for what stood in the window before their hit."},
    Plant{.kind = "kv-write-unsynced",
          .form = "last-rows-unwritten",
          .host = kHost,
          .site = "hit: state layers.2.rows",
          .what = "the last page of a prefix is copied before its last eight rows of each kind are written",
          .apply = &plant_unsynced<false>,
          .prior = "....~~.~"},
    Plant{.kind = "kv-write-unsynced",
          .form = "row-coin",
          .host = kHost,
          .site = "hit: state layers.2.rows",
          .what = "the same for each of these rows by itself, one in four, another choice at each hit",
          .apply = &plant_unsynced<true>,
          .prior = "....~~.~"},
};

}  // namespace

std::span<const Plant> prefix_cache_plants() { return kPlants; }

}  // namespace plumb::faults
