#include <algorithm>

#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/dot_rows_cpu.h"

namespace plumb {

void grouped_linear_cpu(const GroupedLinear& a) {
  const std::int64_t rows = a.x.extent(0), groups = a.x.extent(1), in = a.x.extent(2), out = a.out.extent(2);
  const std::int64_t begin = a.outputs.begin, end = a.outputs.end < 0 ? groups * out : a.outputs.end;
  CHECK(a.weight.extent(0) == groups && a.weight.extent(1) == in && a.weight.extent(2) == out);
  CHECK(a.out.extent(0) == rows && a.out.extent(1) == groups);
  CHECK(0 <= begin && begin <= end && end <= groups * out);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = std::max(begin, g * out), last = std::min(end, (g + 1) * out);
    if (first >= last) continue;
    dot_rows_cpu({.x = a.x.data() + g * in,
                  .x_stride = groups * in,
                  .w = a.weight.row(g) + first - g * out,
                  .w_stride = out,
                  .rows = rows,
                  .in = in,
                  .out = last - first},
                 a.out.data() + first, groups * out);
  }
}

}  // namespace plumb
