#include "ops/linear/dot_rows_cpu.h"
#include "ops/linear/linear.h"

namespace plumb {

void linear_cpu(const Linear& a) {
  const std::int64_t rows = a.x.extent(0), in = a.x.extent(1), out = a.out.extent(1);
  const std::int64_t begin = a.outputs.begin, end = a.outputs.end < 0 ? out : a.outputs.end;
  CHECK(a.weight.extent(0) == in && a.weight.extent(1) == out && a.out.extent(0) == rows);
  CHECK(0 <= begin && begin <= end && end <= out);
  dot_rows_cpu({.x = a.x.data(),
                .x_stride = in,
                .w = a.weight.data() + begin,
                .w_stride = out,
                .rows = rows,
                .in = in,
                .out = end - begin},
               a.out.data() + begin, out);
}

}  // namespace plumb
