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

struct AppliedSide {
  const SwitchSpec* spec;
  const SwitchSide* side;
};
/// The sides that a variant applies, in the order of the switches. Of a switch with more than two sides exactly one:
/// the value that is on, else the off side, in the place of its first value.
std::vector<AppliedSide> applied_sides(const Deployment& deployment, const Variant& variant);

/// Whether the same running processes can be asked as either variant: they differ in nothing but what requests carry.
bool same_processes(const Deployment& deployment, const Variant& a, const Variant& b);

/// The endpoint that a variant asks: what the last applied side with an `endpoint` says, else the first one.
std::size_t endpoint_of(const Deployment& deployment, const Variant& variant);
/// The index of the endpoint of this name.
std::optional<std::size_t> endpoint_named(const Deployment& deployment, const std::string& name);

}  // namespace plumb::investigator
