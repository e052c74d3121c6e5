#include <algorithm>
#include <cmath>

#include "ops/rms_norm/rms_norm.h"

namespace plumb {
namespace {

// Chains of this many rows run side by side: one chain alone waits for its own additions.
constexpr std::int64_t kRowTile = 8;

}  // namespace

void sum_of_squares(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width, double* sums) {
  std::int64_t row = 0;
  for (; row + kRowTile <= rows; row += kRowTile) {
    double sum[kRowTile] = {};
    for (std::int64_t k = 0; k < width; ++k)
      for (std::int64_t r = 0; r < kRowTile; ++r) {
        const double value = x[(row + r) * stride + k];
        sum[r] += value * value;
      }
    std::copy_n(sum, kRowTile, sums + row);
  }
  for (; row < rows; ++row) {
    double sum = 0.0;
    for (std::int64_t k = 0; k < width; ++k) {
      const double value = x[row * stride + k];
      sum += value * value;
    }
    sums[row] = sum;
  }
}

void rms_norm_ref(const RmsNorm& a) {
  const std::int64_t rows = a.x.extent(0), width = a.x.extent(1);
  CHECK(a.out.extents() == a.x.extents() && width > 0);
  CHECK(a.weight.data() == nullptr || a.weight.extent(0) == width);
  double sums[kRowTile];
  for (std::int64_t first = 0; first < rows; first += kRowTile) {
    const std::int64_t count = std::min(kRowTile, rows - first);
    sum_of_squares(a.x.row(first), width, count, width, sums);
    for (std::int64_t r = 0; r < count; ++r) {
      const double factor = 1.0 / std::sqrt(sums[r] / static_cast<double>(width) + a.eps);
      const float* x = a.x.row(first + r);
      float* out = a.out.row(first + r);
      if (a.weight.data() == nullptr)
        for (std::int64_t c = 0; c < width; ++c) out[c] = static_cast<float>(x[c] * factor);
      else
        for (std::int64_t c = 0; c < width; ++c) out[c] = static_cast<float>(x[c] * factor * a.weight(c));
    }
  }
}

}  // namespace plumb
