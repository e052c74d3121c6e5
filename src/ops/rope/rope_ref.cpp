#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/math.h"
#include "ops/rope/rope.h"

namespace plumb {

std::vector<double> rope_frequencies(const RopeFrequencies& a) {
  CHECK(a.dim > 0 && a.dim % 2 == 0 && a.theta > 1.0);
  const double dim = static_cast<double>(a.dim), log_theta = math::log(a.theta);
  double low = 0.0, high = 0.001;
  if (a.factor != 1.0) {
    const auto correction = [&](double beta) {
      return dim * math::log(a.original_max_positions / (2.0 * std::numbers::pi * beta)) / (2.0 * log_theta);
    };
    low = std::max(std::floor(correction(a.beta_fast)), 0.0);
    high = std::min(std::ceil(correction(a.beta_slow)), dim - 1.0);
    if (low == high) high = low + 0.001;
  }
  std::vector<double> frequencies(static_cast<std::size_t>(a.dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = math::exp(-2.0 * static_cast<double>(i) / dim * log_theta);
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = a.factor == 1.0 ? plain : plain * (1.0 - ramp) + plain / a.factor * ramp;
  }
  return frequencies;
}

void rope_table_ref(const RopeTable& a) {
  const std::int64_t half = a.table.extent(1);
  CHECK(static_cast<std::int64_t>(a.frequencies.size()) == half && a.table.extent(2) == 2);
  for (std::int64_t t = 0; t < a.table.extent(0); ++t) {
    const double position = static_cast<double>(a.first + t * a.step);
    for (std::int64_t i = 0; i < half; ++i) {
      const math::SinCos value = math::sin_cos(position * a.frequencies[static_cast<std::size_t>(i)]);
      a.table(t, i, 0) = value.cos;
      a.table(t, i, 1) = value.sin;
    }
  }
}

void rope_ref(const Rope& a) {
  const std::int64_t heads = a.x.extent(1), dim = a.x.extent(2), half = a.table.extent(1);
  CHECK(a.table.extent(0) == a.x.extent(0) && a.table.extent(2) == 2 && 2 * half <= dim);
  for (std::int64_t t = 0; t < a.x.extent(0); ++t) {
    const double* table = a.table.row(t);
    for (std::int64_t h = 0; h < heads; ++h) {
      float* x = a.x.row(t) + (h + 1) * dim - 2 * half;
      for (std::int64_t i = 0; i < half; ++i) {
        const double c = table[2 * i], s = a.inverse ? -table[2 * i + 1] : table[2 * i + 1];
        const double even = x[2 * i], odd = x[2 * i + 1];
        x[2 * i] = static_cast<float>(even * c - odd * s);
        x[2 * i + 1] = static_cast<float>(even * s + odd * c);
      }
    }
  }
}

}  // namespace plumb
