#pragma once

#include "ops/hyper_connection/hyper_connection.h"

namespace plumb {

// Steps of hc_pre_ref, for whoever runs them in another order.

/// The shapes of the ports fit.
void check_ports(const HcPre& a);
/// post and comb of token t, and pre [n] f64; `mix` is its v fn, `factor` one over its root mean square.
void hc_coefficients(const HcPre& a, std::int64_t t, const double* mix, double factor, double* pre);
/// collapsed of token t.
void hc_collapse(const HcPre& a, std::int64_t t, const double* pre);

}  // namespace plumb
