#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "faults/forms.h"
#include "runtime/steps.h"

namespace plumb::faults {
namespace {

// Pages whose index rows were reset, kept while a sequence points to them: the pool's own pages may be shared with
// stored prefixes, which this fault does not touch. One entry a sequence in flight; an address that is used again
// starts anew.
using PageCopies = std::vector<std::unique_ptr<float[]>>;
std::map<const SequenceState*, PageCopies> copies_of;

void reset_index_rows(const StateLayout& layout, SequenceState& state) {
  PageCopies& copies = copies_of[&state];
  std::erase_if(copies,
                [&](const auto& copy) { return std::ranges::find(state.pages, copy.get()) == state.pages.end(); });
  const auto sealed = static_cast<std::size_t>(state.length / kPageTokens);
  for (std::size_t i = 0; i < sealed; ++i) {
    auto copy = std::make_unique<float[]>(static_cast<std::size_t>(layout.page_floats()));
    std::copy_n(state.pages[i], layout.page_floats(), copy.get());
    for (const StateKind& kind : layout.kinds())
      if (kind.home == Home::page && kind.name.ends_with(".index_rows"))
        std::fill_n(copy.get() + kind.offset, kind.rows * kind.width, 0.0f);
    state.pages[i] = copy.get();
    copies.push_back(std::move(copy));
  }
}

// Every chunk but the first starts from a reset indexer: the index keys of the pages before it are zero, so that
// nothing told in an earlier chunk is found again, while what the last chunk holds is.
std::int64_t chunk_from_reset_indexer(const PrefillStep& step) {
  if (step.state->length > 0) reset_index_rows(*step.layout, *step.state);
  return prefill_chunk(step);
}

}  // namespace

void plant_chunk_reset_indexer(const Dose&) { replace_on_side<"prefill.chunked">(&chunk_from_reset_indexer); }

}  // namespace plumb::faults
