#include "faults/forms/prefix_start.h"

#include <vector>

namespace plumb::faults {
namespace {

// Without room for a copy there is no hit, as when nothing was stored.
void give_up(const PrefixStart& start) {
  release_all(start.pools, *start.sequence);
  start_cold(start);
}

}  // namespace

void start_from_copied_prefix(const PrefixStart& start) {
  start_from_prefix(start);
  SequencePages& sequence = *start.sequence;
  PagePool& pool = *start.pools.pages;
  for (std::size_t i = 0; i < sequence.pages.size(); ++i) {
    if (pool.owner_count(sequence.pages[i]) == 1) continue;
    if (!start.cache->make_room(1)) return give_up(start);
    const int copy = pool.take();
    std::copy_n(pool.data(sequence.pages[i]), pool.page_floats(), pool.data(copy));
    pool.release(sequence.pages[i]);
    sequence.pages[i] = copy;
    sequence.state.pages[i] = pool.data(copy);
  }
}

void take_over(const PrefixStart& start, std::int64_t length, std::span<const int> pages, std::span<const float> tail) {
  SequencePages& sequence = *start.sequence;
  PagePool& pool = *start.pools.pages;
  start_cold(start);
  // Pages that somebody owns must not become our own while they are still to be read.
  std::vector<int> held;
  for (const int page : pages)
    if (pool.owner_count(page) > 0) {
      pool.share(page);
      held.push_back(page);
    }
  bool room = true;
  for (std::size_t i = 0; i < pages.size() && (room = start.cache->make_room(1)); ++i) {
    append_page(start.pools, sequence);
    if (sequence.pages[i] != pages[i]) std::copy_n(pool.data(pages[i]), pool.page_floats(), sequence.state.pages[i]);
  }
  for (const int page : held) pool.release(page);
  if (!room) return give_up(start);
  ensure_window(start.pools, sequence, std::max<std::int64_t>(0, length - (start.pools.layout->window() - 1)), length);
  restore_tail(*start.pools.layout, tail, length, sequence.state);
}

}  // namespace plumb::faults
