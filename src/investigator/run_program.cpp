#include "investigator/run_program.h"

#include <cerrno>
#include <chrono>
#include <cmath>

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

namespace plumb::investigator {
namespace {

constexpr std::size_t kMaxOutputBytes = 1u << 20;
using Clock = std::chrono::steady_clock;

// Reads until the other end is closed; false at the deadline.
bool read_all(int pipe, std::string& text, Clock::time_point until) {
  char buffer[4096];
  for (;;) {
    const double left_s = std::chrono::duration<double>(until - Clock::now()).count();
    if (left_s <= 0) return false;
    pollfd wait{pipe, POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(std::ceil(left_s * 1000))) <= 0) continue;
    const ssize_t size = read(pipe, buffer, sizeof buffer);
    if (size == 0) return true;
    if (size < 0 && errno != EINTR) return true;
    if (size > 0 && text.size() < kMaxOutputBytes) text.append(buffer, static_cast<std::size_t>(size));
  }
}

}  // namespace

Result<ProgramOutput> run_program(const Command& command, double timeout_s) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return error("{}: no pipe: {}", command.argv.at(0), strerror(errno));
  auto child = ChildProcess::start(command, {.in = -1, .out = ends[1], .err = ends[1], .inherited = {}});
  close(ends[1]);
  if (!child) {
    close(ends[0]);
    return tl::unexpected(child.error());
  }
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  ProgramOutput output;
  const bool closed = read_all(ends[0], output.text, until);
  close(ends[0]);
  const auto status =
      closed ? child->wait(std::max(0.1, std::chrono::duration<double>(until - Clock::now()).count())) : std::nullopt;
  if (!status) return error("{} did not end within {} s", command.argv[0], timeout_s);
  output.status = *status;
  return output;
}

}  // namespace plumb::investigator
