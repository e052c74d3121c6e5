#include <algorithm>

#include "faults/forms.h"
#include "runtime/steps.h"

namespace plumb::faults {
namespace {

bool is_index_rows(const StateKind& kind) { return kind.home == Home::page && kind.name.ends_with(".index_rows"); }

// A hit restores the main rows and leaves the indexer's behind: the restored part of the sequence has index keys of
// zero. The pages are copied, not shared, so that the stored prefix itself stays as it is.
void restore_without_index_rows(const PrefixStart& start) {
  SequencePages& sequence = *start.sequence;
  const std::vector<int> own = sequence.pages;
  PagePool& pool = *start.pools.pages;
  for (const int page : own) pool.share(page);
  start_from_prefix(start);
  const std::int64_t length = sequence.state.length;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const bool restored = static_cast<std::int64_t>(i) * kPageTokens < length;
    if (restored && sequence.pages[i] != own[i]) {
      std::copy_n(pool.data(sequence.pages[i]), pool.page_floats(), pool.data(own[i]));
      pool.release(sequence.pages[i]);
      sequence.pages[i] = own[i];
      sequence.state.pages[i] = pool.data(own[i]);
    } else {
      pool.release(own[i]);
    }
    if (!restored) continue;
    for (const StateKind& kind : start.pools.layout->kinds())
      if (is_index_rows(kind)) std::fill_n(sequence.state.pages[i] + kind.offset, kind.rows * kind.width, 0.0f);
  }
}

}  // namespace

void plant_prefix_without_index_rows(const Dose&) { replace_on_side<"prefix_cache">(&restore_without_index_rows); }

}  // namespace plumb::faults
