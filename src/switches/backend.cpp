#include "switches/backend.h"

namespace plumb {

std::string_view backend_name(Backend backend) { return backend == Backend::cpu ? "cpu" : "ref"; }

Result<Backend> parse_backend(std::string_view name) {
  for (const Backend backend : {Backend::ref, Backend::cpu})
    if (backend_name(backend) == name) return backend;
  return error("backend '{}': there are cpu and ref", name);
}

}  // namespace plumb
