#include "faults/check/children.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

namespace plumb::faults {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPollMs = 1000;

struct Child {
  std::size_t job;
  pid_t pid;
  int out;
  std::string text;
  Clock::time_point began;
};

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(fd, text.data() + at, text.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ::_exit(1);
    at += static_cast<std::size_t>(count);
  }
}

[[noreturn]] void run_child(const Job& job, int out, pid_t parent) {
  // Nobody reads the result once the parent is gone.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  try {
    write_all(out, job());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    ::_exit(1);
  }
  ::_exit(0);
}

Result<Child> start(std::size_t number, const Job& job) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return error("pipe: {}", std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(pipe[0]);
    run_child(job, pipe[1], parent);
  }
  ::close(pipe[1]);
  if (pid < 0) {
    ::close(pipe[0]);
    return error("fork: {}", std::strerror(errno));
  }
  return Child{number, pid, pipe[0], {}, Clock::now()};
}

// Reads what there is; true at the end.
bool read_some(Child& child) {
  std::array<char, 65536> bytes{};
  const ssize_t count = ::read(child.out, bytes.data(), bytes.size());
  if (count > 0) child.text.append(bytes.data(), static_cast<std::size_t>(count));
  return count == 0 || (count < 0 && errno != EINTR);
}

Result<std::string> finish(Child& child, bool timed_out) {
  ::close(child.out);
  if (timed_out) ::kill(child.pid, SIGKILL);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (timed_out) return error("not done in time");
  if (status != 0) return error("ended with {}", describe_exit_status(status));
  return std::move(child.text);
}

}  // namespace

std::vector<Result<std::string>> run_in_children(const std::vector<Job>& jobs, int at_a_time, double timeout_s,
                                                 const std::function<void(std::size_t job)>& done) {
  std::vector<Result<std::string>> results(jobs.size(), error("not run"));
  std::vector<Child> running;
  std::size_t next = 0;
  while (next < jobs.size() || !running.empty()) {
    while (next < jobs.size() && running.size() < static_cast<std::size_t>(at_a_time)) {
      auto child = start(next, jobs[next]);
      if (child)
        running.push_back(std::move(*child));
      else
        results[next] = tl::unexpected(child.error());
      ++next;
    }
    std::vector<pollfd> wait;
    for (const Child& child : running) wait.push_back({child.out, POLLIN, 0});
    if (::poll(wait.data(), wait.size(), kPollMs) < 0 && errno != EINTR) break;
    for (std::size_t i = running.size(); i-- > 0;) {
      Child& child = running[i];
      const bool timed_out = std::chrono::duration<double>(Clock::now() - child.began).count() > timeout_s;
      if (!timed_out && (wait[i].revents == 0 || !read_some(child))) continue;
      results[child.job] = finish(child, timed_out);
      done(child.job);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return results;
}

}  // namespace plumb::faults
