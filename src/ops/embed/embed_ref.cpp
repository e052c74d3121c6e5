#include <algorithm>

#include "ops/embed/embed.h"

namespace plumb {

void embed_ref(const Embed& a) {
  CHECK(static_cast<std::int64_t>(a.tokens.size()) == a.out.extent(0) && a.table.extent(1) == a.out.extent(1));
  for (std::int64_t t = 0; t < a.out.extent(0); ++t) {
    const std::int32_t id = a.tokens[static_cast<std::size_t>(t)];
    CHECK(0 <= id && id < a.table.extent(0));
    std::copy_n(a.table.row(id), a.table.extent(1), a.out.row(t));
  }
}

}  // namespace plumb
