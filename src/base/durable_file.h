#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/result.h"

namespace plumb {

/// The file that writing to `path` replaces: `path`, or what it links to, whether that exists yet or not. Errors: there
/// is something that is no regular file (a device, a pipe, a folder): replacing it would destroy it; links without an
/// end.
Result<std::filesystem::path> replaceable_file(const std::filesystem::path& path);

/// Writes a file that has its name only once it is complete and on disk, replacing the regular file of that name, or
/// the one a link of that name leads to. A kill at any moment leaves the old file or the new one. Errors: those of
/// replaceable_file, before anything is written; the system's reason.
Result<void> write_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode = 0644);

/// Same, from parts that are written one after another.
Result<void> write_file_durably(const std::filesystem::path& path, std::span<const std::string_view> parts,
                                mode_t mode = 0644);

/// Same as the first, but fails when the name is taken.
Result<void> create_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode = 0644);

/// A descriptor to read a regular file, or one a link leads to; the caller closes it. Never waits: a pipe, a device or
/// a folder is an error, and so is a file that cannot be opened.
Result<int> open_regular_file(const std::filesystem::path& path);

/// The bytes of a regular file. Errors: those of open_regular_file; it cannot be read, or it has more than max_bytes.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes = 64u << 20);

/// That a folder is there; the error says whether it is missing or no folder.
Result<void> check_folder(const std::filesystem::path& folder);

}  // namespace plumb
