#include "base/durable_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plumb {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

enum class IfTaken { replace, fail };

constexpr int kMaxLinks = 40;  // one after another, as the system allows

Result<void> write_named(const std::filesystem::path& path, std::span<const std::string_view> parts, mode_t mode,
                         IfTaken if_taken) {
  const std::filesystem::path partial = path.string() + fmt::format(".{}.partial", ::getpid());
  ::unlink(partial.c_str());  // of a process that was killed and had our number
  {
    const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file.get() < 0) return error("{}: cannot be created: {}", path.string(), std::strerror(errno));
    bool written = true;
    for (const std::string_view part : parts) written = written && write_all(file.get(), part);
    if (!written || ::fsync(file.get()) != 0) {
      const int reason = errno;
      ::unlink(partial.c_str());
      return error("{}: cannot be written: {}", path.string(), std::strerror(reason));
    }
  }
  const int named =
      if_taken == IfTaken::replace ? ::rename(partial.c_str(), path.c_str()) : ::link(partial.c_str(), path.c_str());
  const int reason = errno;
  if (named != 0 || if_taken == IfTaken::fail) ::unlink(partial.c_str());
  if (named != 0 && reason == EEXIST) return error("{}: exists already", path.string());
  if (named != 0) return error("{}: cannot be created: {}", path.string(), std::strerror(reason));

  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || ::fsync(directory.get()) != 0)
    return error("{}: cannot be flushed: {}", folder.string(), std::strerror(errno));
  return {};
}

}  // namespace

Result<std::filesystem::path> replaceable_file(const std::filesystem::path& path) {
  if (path.empty()) return error("the name of the file to write is empty");
  std::filesystem::path file = path;
  std::error_code failed;
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(file, failed)); ++links) {
    if (links == kMaxLinks) return error("{}: leads over more than {} links", path.string(), kMaxLinks);
    const auto target = std::filesystem::read_symlink(file, failed);
    if (failed) return error("{}: cannot be looked at: {}", file.string(), failed.message());
    file = file.parent_path() / target;
  }
  const auto status = std::filesystem::status(file, failed);
  if (status.type() == std::filesystem::file_type::none)
    return error("{}: cannot be looked at: {}", file.string(), failed.message());
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return error("{}: is there and is not a regular file; choose another name", path.string());
  return file;
}

Result<void> write_file_durably(const std::filesystem::path& path, std::span<const std::string_view> parts,
                                mode_t mode) {
  const auto file = replaceable_file(path);
  if (!file) return tl::unexpected(file.error());
  return write_named(*file, parts, mode, IfTaken::replace);
}

Result<void> write_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  return write_file_durably(path, {&text, 1}, mode);
}

Result<void> create_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  return write_named(path, {&text, 1}, mode, IfTaken::fail);
}

Result<void> check_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  const auto status = std::filesystem::status(folder, failed);
  if (status.type() == std::filesystem::file_type::not_found) return error("{}: no such folder", folder.string());
  if (status.type() == std::filesystem::file_type::none)
    return error("{}: cannot be looked at: {}", folder.string(), failed.message());
  if (!std::filesystem::is_directory(status)) return error("{}: not a folder", folder.string());
  return {};
}

Result<int> open_regular_file(const std::filesystem::path& path) {
  // Looked at before it is opened, because opening a device can already do something; and after, because it may have
  // been exchanged. O_NONBLOCK: opening a pipe would wait for a writer.
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return error("{}: not a regular file", path.string());
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return error("{}: not a regular file", path.string());
  }
  return fd;
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const auto opened = open_regular_file(path);
  if (!opened) return tl::unexpected(opened.error());
  const Descriptor file(*opened);
  std::string text;
  constexpr std::size_t kPieceBytes = 1u << 16;
  for (;;) {
    const std::size_t size = text.size();
    text.resize(size + kPieceBytes);
    const ssize_t count = ::read(file.get(), text.data() + size, kPieceBytes);
    text.resize(size + (count > 0 ? static_cast<std::size_t>(count) : 0));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error("{}: cannot be read: {}", path.string(), std::strerror(errno));
    if (count == 0) return text;
    if (text.size() > max_bytes) return error("{}: has more than {} bytes", path.string(), max_bytes);
  }
}

}  // namespace plumb
