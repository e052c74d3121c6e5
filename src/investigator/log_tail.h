#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace plumb::investigator {

/// The text with what is not UTF-8 and control characters other than tab and line end replaced, at most max_bytes long.
std::string printable(std::string_view bytes, std::size_t max_bytes);

/// The last lines of a log from byte `begin` on: at most 64 KiB, made printable; "" for an empty or missing file.
std::string tail_of_log(const std::filesystem::path& log, std::uint64_t begin, int lines);

/// Looks for a line that matches a `ready.log` expression in a growing log. Of each line the first 4096 bytes count, so
/// that no log, however hostile, makes a look expensive.
class LogWatch {
 public:
  /// `pattern` must have passed refuse_log_regex; empty: found from the start.
  LogWatch(std::filesystem::path log, std::uint64_t begin, const std::string& pattern);
  ~LogWatch();
  LogWatch(LogWatch&&) noexcept;

  /// Reads on by at most 1 MiB; true from the first match on.
  bool found();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb::investigator
