#pragma once

#include "switches/backend.h"

namespace plumb::faults {

/// The backend that this process computes on; `apply` (plants.h) sets it before a plant replaces anything.
extern Backend planted_backend;

/// What that backend runs for a reference: what a plant calls wherever it does as it should.
template <auto* Reference>
auto* honest() {
  return on_backend<Reference>(planted_backend);
}

}  // namespace plumb::faults
