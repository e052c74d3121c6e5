#pragma once

#include "switches/on_side.h"

namespace plumb {

/// Where the routed scaling factor is applied: `router` multiplies the normalised weights of the chosen experts,
/// `output` the sum of their outputs. The product of the two is the factor, whatever the side.
struct RoutedScale {
  double router;
  double output;
};
/// {factor, 1}.  Source: model specification 3.11.
RoutedScale scale_in_router(double factor);
/// {1, factor}: the router's weights sum to 1, the routed sum is multiplied once; the shared expert is not.
/// Source: model specification 6 (hash routing row).
RoutedScale scale_on_output(double factor);

template <>
struct Sides<"moe.scale_on_output"> {
  static constexpr auto* off = &scale_in_router;
  static constexpr auto* on = &scale_on_output;
};

}  // namespace plumb
