#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "investigator/deployment.h"

namespace plumb::investigator {

/// `variant` with one switch at `on`. Where `requires` would be violated, the switches it needs are turned on too (or
/// those that need it, off); nullopt when even that is not allowed.
std::optional<Variant> with_side(const Deployment& deployment, Variant variant, std::size_t index, bool on);

/// Indices at which two variants differ.
std::vector<std::size_t> difference(const Variant& a, const Variant& b);

}  // namespace plumb::investigator
