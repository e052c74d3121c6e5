#include "ops/linear/dot_rows.h"
#include "ops/linear/linear.h"

namespace plumb {

void linear_ref(const Linear& a) {
  const std::int64_t rows = a.x.extent(0), in = a.x.extent(1), out = a.out.extent(1);
  CHECK(a.weight.extent(0) == in && a.weight.extent(1) == out && a.out.extent(0) == rows);
  dot_rows({.x = a.x.data(), .x_stride = in, .w = a.weight.data(), .w_stride = out, .rows = rows, .in = in, .out = out},
           a.out.data(), out);
}

}  // namespace plumb
