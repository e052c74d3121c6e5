#include "ops/routed_scale/routed_scale.h"

namespace plumb {

RoutedScale scale_in_router(double factor) { return {.router = factor, .output = 1.0}; }

RoutedScale scale_on_output(double factor) { return {.router = 1.0, .output = factor}; }

}  // namespace plumb
