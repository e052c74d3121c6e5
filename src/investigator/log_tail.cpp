#include "investigator/log_tail.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include <regex.h>

#include "base/check.h"

namespace plumb::investigator {
namespace {

constexpr std::size_t kTailBytes = 64u << 10;
constexpr std::size_t kMaxLineBytes = 4096;
constexpr std::size_t kMaxReadBytes = 1u << 20;

// Length of the valid UTF-8 sequence at the start of the text, 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first >= 0xf5 || text.size() < length) return 0;
  std::uint32_t code = first & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  return overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

std::string read_range(const std::filesystem::path& file, std::uint64_t begin, std::size_t max_bytes) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes(max_bytes, '\0');
  in.seekg(static_cast<std::streamoff>(begin));
  in.read(bytes.data(), static_cast<std::streamsize>(max_bytes));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  return bytes;
}

}  // namespace

std::string printable(std::string_view bytes, std::size_t max_bytes) {
  std::string text;
  while (!bytes.empty() && text.size() < max_bytes) {
    const std::size_t length = sequence_length(bytes);
    const unsigned char first = static_cast<unsigned char>(bytes[0]);
    const bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
    if (length == 0 || control)
      text += '?';
    else
      text += bytes.substr(0, length);
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return bytes.empty() ? text : text + "…";
}

std::string tail_of_log(const std::filesystem::path& log, std::uint64_t begin, int lines) {
  std::error_code failed;
  const std::uint64_t size = std::filesystem::file_size(log, failed);
  if (failed || size <= begin) return "";
  std::string bytes = read_range(log, std::max(begin, size > kTailBytes ? size - kTailBytes : 0), kTailBytes);
  while (!bytes.empty() && (bytes.back() == '\n' || bytes.back() == '\r')) bytes.pop_back();
  std::size_t start = bytes.size();
  for (int line = 0; line < lines && start != std::string::npos && start > 0; ++line)
    start = bytes.rfind('\n', start - 1);
  if (start == std::string::npos || start == 0) start = 0;
  if (start < bytes.size() && bytes[start] == '\n') ++start;
  return printable(std::string_view(bytes).substr(start), kTailBytes);
}

struct LogWatch::Impl {
  std::filesystem::path log;
  std::uint64_t next = 0;  // first byte not read yet
  std::string line;        // the line being read, up to kMaxLineBytes of it
  bool found = false;
  regex_t pattern{};
  bool compiled = false;

  ~Impl() {
    if (compiled) regfree(&pattern);
  }

  void look() {
    std::replace(line.begin(), line.end(), '\0', '?');
    found = regexec(&pattern, line.c_str(), 0, nullptr, 0) == 0;
  }

  void feed(std::string_view bytes) {
    while (!bytes.empty() && !found) {
      const std::size_t end = std::min(bytes.find('\n'), bytes.size());
      line.append(bytes.substr(0, std::min(end, kMaxLineBytes - line.size())));
      const bool complete = end < bytes.size();
      if (complete) {
        look();
        line.clear();
      }
      bytes.remove_prefix(complete ? end + 1 : end);
    }
  }
};

LogWatch::LogWatch(std::filesystem::path log, std::uint64_t begin, const std::string& pattern)
    : impl_(std::make_unique<Impl>()) {
  impl_->log = std::move(log);
  impl_->next = begin;
  impl_->found = pattern.empty();
  if (pattern.empty()) return;
  CHECK(regcomp(&impl_->pattern, pattern.c_str(), REG_EXTENDED | REG_NOSUB) == 0);
  impl_->compiled = true;
}

LogWatch::~LogWatch() = default;
LogWatch::LogWatch(LogWatch&&) noexcept = default;

bool LogWatch::found() {
  if (impl_->found) return true;
  const std::string bytes = read_range(impl_->log, impl_->next, kMaxReadBytes);
  impl_->next += bytes.size();
  impl_->feed(bytes);
  return impl_->found;
}

}  // namespace plumb::investigator
