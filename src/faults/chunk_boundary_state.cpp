#include <algorithm>

#include "faults/forms.h"
#include "runtime/steps.h"

namespace plumb::faults {
namespace {

// Every chunk but the first starts from zeros in the previous half of the overlapping compressors: the first row of
// each chunk mixes zeros where the last group of the chunk before belongs.
std::int64_t chunk_with_zero_overlap(const PrefillStep& step) {
  SequenceState& state = *step.state;
  if (state.length > 0 && state.length % step.chunk_tokens == 0)
    for (const StateKind& kind : step.layout->kinds())
      if (kind.home == Home::open && (kind.name.ends_with(".previous_k") || kind.name.ends_with(".previous_s")))
        std::fill_n(state.open.begin() + kind.offset, kind.rows * kind.width, 0.0f);
  return prefill_chunk(step);
}

}  // namespace

void plant_chunk_zero_overlap(const Dose&) { replace_on_side<"prefill.chunked">(&chunk_with_zero_overlap); }

}  // namespace plumb::faults
