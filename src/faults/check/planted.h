#pragma once

#include <cstdint>
#include <string>

#include "faults/check/measure.h"
#include "faults/plants.h"

namespace plumb::faults {

/// How a plant is measured, without its fault: probes run as deployed, the defaults with the host on; texts run with
/// the host alone, the single flip. A wrong off side is measured with its host off.
Variant honest_variant(const Plant& plant);

/// The same with the fault: the same seed and launch draw the same.
Variant planted_variant(const Plant& plant, std::uint64_t seed, std::uint64_t launch);

/// Names what has one honest variant: a host's side on the same layers.
std::string ground_name(const Plant& plant);

}  // namespace plumb::faults
