#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "investigator/deployment.h"

// Any bytes: a deployment, or an error that names the file. What is accepted can be launched as deployed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plumb::investigator;
  const auto parsed = parse_deployment({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
  if (!parsed && parsed.error().message.rfind("fuzz.toml:", 0) != 0) std::abort();
  if (parsed && !check_variant(*parsed, as_deployed(*parsed))) std::abort();
  return 0;
}
