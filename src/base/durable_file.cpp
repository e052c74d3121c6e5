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

Result<void> write_named(const std::filesystem::path& path, std::string_view text, mode_t mode, IfTaken if_taken) {
  const std::filesystem::path partial = path.string() + fmt::format(".{}.partial", ::getpid());
  ::unlink(partial.c_str());  // of a process that was killed and had our number
  {
    const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file.get() < 0) return error("{}: cannot be created: {}", path.string(), std::strerror(errno));
    if (!write_all(file.get(), text) || ::fsync(file.get()) != 0) {
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

Result<void> write_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  return write_named(path, text, mode, IfTaken::replace);
}

Result<void> create_file_durably(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  return write_named(path, text, mode, IfTaken::fail);
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0)
    return error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  if (S_ISDIR(info.st_mode)) return error("{}: is a folder", path.string());
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
