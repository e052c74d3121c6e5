#include "investigator/scrubbed_log.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "investigator/secrets.h"

namespace plumb::investigator {
namespace {

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a full disk must not stop the server
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

struct ScrubbedLog::Pipe {
  int from = -1, to = -1;
  std::atomic<bool> busy{false};  // between looking at the pipe and having written what was in it
  std::atomic<bool> ended{false};
  ~Pipe() {
    close(from);
    close(to);
  }

  void copy() {
    std::string pending;
    char buffer[16384];
    for (;;) {
      pollfd wait{from, POLLIN, 0};
      busy = false;
      if (poll(&wait, 1, -1) < 0) continue;
      busy = true;
      const ssize_t size = read(from, buffer, sizeof buffer);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) break;
      pending.append(buffer, static_cast<std::size_t>(size));
      // Whole secrets first: the end of one may be the beginning of another.
      pending = without_secrets(pending);
      const std::size_t held = secret_may_begin(pending);
      write_all(to, std::string_view(pending).substr(0, pending.size() - held));
      pending.erase(0, pending.size() - held);
    }
    write_all(to, pending);
    ended = true;
  }

  bool is_empty() const {
    int bytes = 0;
    return ended || (ioctl(from, FIONREAD, &bytes) == 0 && bytes == 0 && !busy);
  }
};

Result<ScrubbedLog> ScrubbedLog::open(int file) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    close(file);
    return error("a log without secrets needs a pipe: {}", strerror(errno));
  }
  ScrubbedLog log;
  log.writer_ = ends[1];
  log.pipe_ = std::make_shared<Pipe>();
  log.pipe_->from = ends[0];
  log.pipe_->to = file;
  log.thread_ = std::thread([pipe = log.pipe_] { pipe->copy(); });
  return log;
}

void ScrubbedLog::settle() const {
  constexpr int kMostLooks = 1000;
  for (int look = 0; pipe_ != nullptr && look < kMostLooks && !pipe_->is_empty(); ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

ScrubbedLog::ScrubbedLog(ScrubbedLog&& other) noexcept
    : writer_(std::exchange(other.writer_, -1)), pipe_(std::move(other.pipe_)), thread_(std::move(other.thread_)) {}

ScrubbedLog::~ScrubbedLog() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace plumb::investigator
