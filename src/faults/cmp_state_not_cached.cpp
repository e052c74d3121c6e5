#include <algorithm>

#include "faults/forms.h"
#include "runtime/steps.h"

namespace plumb::faults {
namespace {

bool is_index_rows(const StateKind& kind) { return kind.home == Home::page && kind.name.ends_with(".index_rows"); }

// A hit restores the main rows and leaves the indexer's behind: the restored part of the sequence has index keys of
// zero. Shared pages are copied first, so that the stored prefix itself stays as it is.
void restore_without_index_rows(const PrefixStart& start) {
  start_from_prefix(start);
  SequencePages& sequence = *start.sequence;
  PagePool& pool = *start.pools.pages;
  for (std::size_t i = 0; i < sequence.pages.size(); ++i) {
    if (pool.owner_count(sequence.pages[i]) > 1) {
      // Without room for a copy there is no hit, as when nothing was stored.
      if (!start.cache->make_room(1)) {
        release_all(start.pools, sequence);
        return start_cold(start);
      }
      const int copy = pool.take();
      std::copy_n(pool.data(sequence.pages[i]), pool.page_floats(), pool.data(copy));
      pool.release(sequence.pages[i]);
      sequence.pages[i] = copy;
      sequence.state.pages[i] = pool.data(copy);
    }
    for (const StateKind& kind : start.pools.layout->kinds())
      if (is_index_rows(kind)) std::fill_n(sequence.state.pages[i] + kind.offset, kind.rows * kind.width, 0.0f);
  }
}

}  // namespace

void plant_prefix_without_index_rows(const Dose&) { replace_on_side<"prefix_cache">(&restore_without_index_rows); }

}  // namespace plumb::faults
