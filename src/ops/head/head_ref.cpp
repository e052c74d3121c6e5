#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "ops/head/head.h"
#include "ops/linear/dot_rows.h"
#include "ops/rms_norm/rms_norm.h"

namespace plumb {

void hc_head_ref(const HcHead& a) {
  constexpr std::int64_t kRowTile = 8;
  const std::int64_t rows = a.streams.extent(0), n = a.streams.extent(1), d = a.streams.extent(2);
  CHECK(n <= kMaxStreams && a.fn.extent(0) == n * d && a.fn.extent(1) == n && a.out.extent(0) == rows);
  double mix[kRowTile * kMaxStreams], squares[kRowTile];
  for (std::int64_t first = 0; first < rows; first += kRowTile) {
    const std::int64_t count = std::min(kRowTile, rows - first);
    dot_rows({.x = a.streams.row(first),
              .x_stride = n * d,
              .w = a.fn.data(),
              .w_stride = n,
              .rows = count,
              .in = n * d,
              .out = n},
             mix, n);
    sum_of_squares(a.streams.row(first), n * d, count, n * d, squares);
    for (std::int64_t r = 0; r < count; ++r) {
      const double factor = 1.0 / std::sqrt(squares[r] / static_cast<double>(n * d) + a.eps);
      for (std::int64_t j = 0; j < n; ++j)
        mix[r * n + j] = math::sigmoid(mix[r * n + j] * factor * a.scale(0) + a.base(j)) + a.hc_eps;
      const float* streams = a.streams.row(first + r);
      for (std::int64_t c = 0; c < d; ++c) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < n; ++j) sum += mix[r * n + j] * streams[j * d + c];
        a.out(first + r, c) = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace plumb
