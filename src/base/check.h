#pragma once

#include <cstdio>
#include <cstdlib>

namespace plumb::detail {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
  std::abort();
}

}  // namespace plumb::detail

/// Stops the process when an invariant of ours is broken, also in release: wrong tokens cost more than a stop.
#define CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::plumb::detail::check_failed(#condition, __FILE__, __LINE__))
