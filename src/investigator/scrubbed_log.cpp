#include "investigator/scrubbed_log.h"

#include <cerrno>
#include <string>
#include <utility>

#include <fcntl.h>
#include <string.h>
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

void copy_without_secrets(int from, int to) {
  std::string pending;
  char buffer[16384];
  for (;;) {
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
  close(from);
  close(to);
}

}  // namespace

Result<ScrubbedLog> ScrubbedLog::open(int file) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    close(file);
    return error("a log without secrets needs a pipe: {}", strerror(errno));
  }
  ScrubbedLog log;
  log.writer_ = ends[1];
  log.thread_ = std::thread(copy_without_secrets, ends[0], file);
  return log;
}

ScrubbedLog::ScrubbedLog(ScrubbedLog&& other) noexcept
    : writer_(std::exchange(other.writer_, -1)), thread_(std::move(other.thread_)) {}

ScrubbedLog::~ScrubbedLog() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace plumb::investigator
