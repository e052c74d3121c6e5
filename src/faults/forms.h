#pragma once

#include "faults/plants.h"

namespace plumb::faults {

// One function a form: it replaces the on side of its host switch. What each does stands at its definition.
void plant_splitk_no_rescale(const Dose& dose);
void plant_index_uniform_heads(const Dose& dose);
void plant_prefix_without_index_rows(const Dose& dose);
void plant_chunk_reset_indexer(const Dose& dose);

}  // namespace plumb::faults
