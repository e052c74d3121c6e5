#include "cli/commands.h"

#include <cstdio>

namespace plumb::cli {

int fail(std::string_view message) {
  std::fprintf(stderr, "plumb: %.*s\n", static_cast<int>(message.size()), message.data());
  return kError;
}

}  // namespace plumb::cli
