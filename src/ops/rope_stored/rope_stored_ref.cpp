#include <algorithm>

#include "ops/rope_stored/rope_stored.h"

namespace plumb {

void rope_table_stored_ref(const RopeTable& a) {
  const std::int64_t count = a.table.extent(0), row = 2 * a.table.extent(1);
  CHECK(a.stored.extent(1) == a.table.extent(1) && a.stored.extent(2) == 2 && a.table.extent(2) == 2);
  CHECK(a.first >= 0 && a.step >= 0 && (count == 0 || a.first + (count - 1) * a.step < a.stored.extent(0)));
  for (std::int64_t t = 0; t < count; ++t) std::copy_n(a.stored.row(a.first + t * a.step), row, a.table.row(t));
}

}  // namespace plumb
