#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/result.h"

namespace plumb {

/// Writes a file that has its name only once it is complete and on disk, replacing one of that name. A kill at any
/// moment leaves the old file or the new one.
Result<void> write_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode = 0644);

/// Same, but fails when the name is taken.
Result<void> create_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode = 0644);

/// The bytes of a file. Errors: it cannot be read, or it has more than max_bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes = 64u << 20);

}  // namespace plumb
