#include "ops/grouped_linear/grouped_linear.h"
#include "ops/linear/dot_rows.h"

namespace plumb {

void grouped_linear_ref(const GroupedLinear& a) {
  const std::int64_t rows = a.x.extent(0), groups = a.x.extent(1), in = a.x.extent(2), out = a.out.extent(2);
  CHECK(a.weight.extent(0) == groups && a.weight.extent(1) == in && a.weight.extent(2) == out);
  CHECK(a.out.extent(0) == rows && a.out.extent(1) == groups);
  for (std::int64_t g = 0; g < groups; ++g)
    dot_rows({.x = a.x.data() + g * in,
              .x_stride = groups * in,
              .w = a.weight.row(g),
              .w_stride = out,
              .rows = rows,
              .in = in,
              .out = out},
             a.out.data() + g * out, groups * out);
}

}  // namespace plumb
