#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace plumb {

/// The inflated content of a gzip file of one member. Errors: missing, damaged or cut short, bytes after the member,
/// more than `most_bytes` inflated.
Result<std::string> read_gzip(const std::filesystem::path& path, std::int64_t most_bytes);

}  // namespace plumb
