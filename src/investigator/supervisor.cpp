#include "investigator/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

namespace plumb::investigator {
namespace {

constexpr int kKillStepMs = 5;         // between two rounds of killing what is left
constexpr int kKeeperMarginMs = 3000;  // what the keeper may need over its graces before the guard kills it
constexpr double kStopMarginS = 10;    // what guard and keeper together may need over the longest grace
constexpr double kMaxGraceS = 3600;

// ---- What runs in guard and keeper: after a fork, so async-signal-safe calls and no allocation. ----

struct KeptProcess {
  const Program* program = nullptr;
  int log = -1, stop_signal = SIGTERM, grace_ms = 0;
  pid_t pid = 0;    // 0: not running
  pid_t group = 0;  // that got the stop signal; 0: none
  const Program* cleanup = nullptr;
  bool started = false;  // once; what it left elsewhere is then to be removed
};

struct Kept {
  std::array<KeptProcess, Supervisor::kMaxProcesses> processes;
  int count = 0;
  int socket = -1, null = -1;
};

std::int64_t now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000;
}

bool is_number(const char* text) {
  if (*text == '\0') return false;
  for (; *text != '\0'; ++text)
    if (*text < '0' || *text > '9') return false;
  return true;
}

int to_number(const char* text) {
  int value = 0;
  for (; *text >= '0' && *text <= '9' && value < 100000000; ++text) value = value * 10 + (*text - '0');
  return value;
}

// Parent of a process by /proc/PID/stat, -1 if it is gone. `name` is the PID in decimal.
int parent_of(int proc, const char* name) {
  char path[32] = {};
  std::size_t length = 0;
  for (; name[length] != '\0' && length < 16; ++length) path[length] = name[length];
  for (const char* rest = "/stat"; *rest != '\0'; ++rest) path[length++] = *rest;
  const int file = openat(proc, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  char text[512];
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return -1;
  text[size] = '\0';
  const char* fields = nullptr;  // after the last ')': the name in parentheses may hold anything
  for (const char* c = text; *c != '\0'; ++c)
    if (*c == ')') fields = c + 1;
  if (fields == nullptr || fields[0] != ' ' || fields[1] == '\0' || fields[2] != ' ') return -1;
  return to_number(fields + 3);
}

// Kills every direct child. Their own children become ours by then (subreaper), so repeating this reaches everybody.
void kill_children() {
  struct Entry {  // linux_dirent64; readdir would allocate
    std::uint64_t inode;
    std::int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[1];
  };
  const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (proc < 0) return;
  const int self = static_cast<int>(syscall(SYS_getpid));
  alignas(Entry) char buffer[4096];
  for (long size; (size = syscall(SYS_getdents64, proc, buffer, sizeof buffer)) > 0;)
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + at);
      const char* name = buffer + at + offsetof(Entry, name);
      if (is_number(name) && parent_of(proc, name) == self) kill(to_number(name), SIGKILL);
      at += entry->length;
    }
  close(proc);
}

// Ends when no child is left: whatever a server started has then been killed and reaped. A process in an
// uninterruptible wait holds this up for as long as the kernel holds it: leaving it would be the orphan that we exist
// to prevent.
void kill_all_that_is_left() {
  for (;;) {
    kill_children();
    pid_t ended;
    while ((ended = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (ended < 0 && errno == ECHILD) return;
    poll(nullptr, 0, kKillStepMs);
  }
}

void report(const Kept& kept, SupervisorEvent::Kind kind, int process, int pid, int value) {
  const SupervisorEvent event{kind, process, pid, value};
  send(kept.socket, &event, sizeof event, MSG_NOSIGNAL | MSG_DONTWAIT);
}

[[noreturn]] void become(const Program& program, int log, int failure_pipe, pid_t keeper) {
  setpgid(0, 0);
  // Dies with the keeper; asked for before looking whether the keeper is already gone.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (static_cast<pid_t>(syscall(SYS_getppid)) != keeper) _exit(127);
  dup2(log, 1);
  dup2(log, 2);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int failed = program.execute();
  [[maybe_unused]] const auto written = write(failure_pipe, &failed, sizeof failed);
  _exit(127);
}

void start_server(Kept& kept, int index) {
  KeptProcess& process = kept.processes[static_cast<std::size_t>(index)];
  int failure_pipe[2];
  if (process.pid != 0 || pipe2(failure_pipe, O_CLOEXEC) != 0)
    return report(kept, SupervisorEvent::Kind::exec_failed, index, 0, process.pid != 0 ? EALREADY : errno);
  const pid_t keeper = static_cast<pid_t>(syscall(SYS_getpid));
  const pid_t pid = _Fork();
  if (pid == 0) become(*process.program, process.log, failure_pipe[1], keeper);
  int failed = pid < 0 ? errno : 0;
  close(failure_pipe[1]);
  if (pid > 0)
    while (read(failure_pipe[0], &failed, sizeof failed) < 0 && errno == EINTR) {
    }
  close(failure_pipe[0]);
  if (failed != 0) return report(kept, SupervisorEvent::Kind::exec_failed, index, 0, failed);
  process.pid = pid;
  process.started = true;
  report(kept, SupervisorEvent::Kind::started, index, pid, 0);
}

// Reaps what has ended, also what fell to us; false when no child is left.
bool reap(Kept& kept) {
  int status = 0;
  pid_t ended;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
    for (int i = 0; i < kept.count; ++i)
      if (KeptProcess& process = kept.processes[static_cast<std::size_t>(i)]; process.pid == ended) {
        process.pid = 0;
        report(kept, SupervisorEvent::Kind::ended, i, ended, status);
      }
  return ended == 0;
}

void stop_servers(Kept& kept, int signals) {
  const std::int64_t start = now_ms();
  for (int i = 0; i < kept.count; ++i) {
    KeptProcess& process = kept.processes[static_cast<std::size_t>(i)];
    // The number of a group whose leader has been reaped may belong to a stranger by now: what is left of it is killed
    // with everything else.
    process.group = process.pid;
    if (process.pid > 0) kill(-process.pid, process.stop_signal);
  }
  for (bool any = reap(kept); any; any = reap(kept)) {
    std::int64_t next = 0;  // the latest end of a grace that somebody still uses
    for (int i = 0; i < kept.count; ++i) {
      const KeptProcess& process = kept.processes[static_cast<std::size_t>(i)];
      const std::int64_t left = start + process.grace_ms - now_ms();
      if (process.pid > 0 && left <= 0) kill(-process.pid, SIGKILL);
      // Workers may need the grace longer than the leader of their group did.
      if (process.group > 0 && kill(-process.group, 0) == 0) next = std::max(next, left);
    }
    if (next <= 0) break;  // only strays are left, or nobody has time
    signalfd_siginfo info[8];
    pollfd wait{signals, POLLIN, 0};
    poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(next, 100)));
    [[maybe_unused]] const auto drained = read(signals, info, sizeof info);
  }
  kill_all_that_is_left();
  reap(kept);
}

// Runs the cleanups of what was started, all at once, after everything else is gone. `all`: we do not know what was.
void clean_up(Kept& kept, bool all) {
  const pid_t self = static_cast<pid_t>(syscall(SYS_getpid));
  std::array<pid_t, Supervisor::kMaxProcesses> running{};
  int left = 0;
  for (int i = 0; i < kept.count; ++i) {
    const KeptProcess& process = kept.processes[static_cast<std::size_t>(i)];
    if (process.cleanup == nullptr || !(process.started || all)) continue;
    const pid_t pid = _Fork();
    if (pid == 0) become(*process.cleanup, process.log, -1, self);
    if (pid < 0) report(kept, SupervisorEvent::Kind::cleaned, i, 0, -1);
    running[static_cast<std::size_t>(i)] = std::max(pid, 0);
    left += pid > 0 ? 1 : 0;
  }
  const std::int64_t until = now_ms() + static_cast<std::int64_t>(Supervisor::kCleanupS * 1000);
  while (left > 0 && now_ms() < until) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno == ECHILD) break;
    if (ended <= 0) poll(nullptr, 0, kKillStepMs);
    for (int i = 0; i < kept.count && ended > 0; ++i) {
      pid_t& pid = running[static_cast<std::size_t>(i)];
      if (pid != ended) continue;
      report(kept, SupervisorEvent::Kind::cleaned, i, pid, status);
      pid = 0;
      --left;
    }
  }
  for (int i = 0; i < kept.count; ++i)
    if (running[static_cast<std::size_t>(i)] > 0) report(kept, SupervisorEvent::Kind::cleaned, i, 0, SIGKILL);
  kill_all_that_is_left();
}

// True when a signal asks us to stop; SIGCHLD alone does not.
bool asked_to_stop(int signals) {
  signalfd_siginfo info[8];
  const ssize_t size = read(signals, info, sizeof info);
  for (std::size_t i = 0; size > 0 && i < static_cast<std::size_t>(size) / sizeof info[0]; ++i)
    if (info[i].ssi_signo != SIGCHLD) return true;
  return false;
}

// Index of a process to start, -1 for nothing now, -2 when the other side is closed.
int next_command(const Kept& kept) {
  unsigned char command = 0;
  const ssize_t size = recv(kept.socket, &command, 1, MSG_DONTWAIT);
  if (size == 0) return -2;
  if (size < 0) return errno == EAGAIN || errno == EINTR ? -1 : -2;
  return command < kept.count ? command : -1;
}

[[noreturn]] void keep(Kept& kept, int signals, int guard_pipe) {
  prctl(PR_SET_NAME, "plumb-keeper");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (bool stop = false; !stop;) {
    pollfd waits[3] = {{kept.socket, POLLIN | POLLRDHUP, 0}, {signals, POLLIN, 0}, {guard_pipe, POLLIN, 0}};
    if (poll(waits, 3, -1) < 0) continue;
    if (waits[1].revents != 0) stop = asked_to_stop(signals);
    if (waits[2].revents != 0) stop = true;  // nobody writes there: the guard is gone
    reap(kept);
    if (waits[0].revents != 0) {
      const int command = next_command(kept);
      if (command >= 0) start_server(kept, command);
      if (command == -2) stop = true;
    }
  }
  stop_servers(kept, signals);
  clean_up(kept, false);
  _exit(0);
}

bool any_cleanup(const Kept& kept) {
  for (int i = 0; i < kept.count; ++i)
    if (kept.processes[static_cast<std::size_t>(i)].cleanup != nullptr) return true;
  return false;
}

[[noreturn]] void guard(Kept& kept, int signals, pid_t keeper) {
  prctl(PR_SET_NAME, "plumb-guard");
  int longest_ms = 0;
  for (int i = 0; i < kept.count; ++i)
    longest_ms = std::max(longest_ms, kept.processes[static_cast<std::size_t>(i)].grace_ms);
  if (any_cleanup(kept)) longest_ms += static_cast<int>(Supervisor::kCleanupS * 1000);
  bool cleaned = false;
  std::int64_t deadline = -1;
  for (bool kept_by_keeper = true; kept_by_keeper;) {
    // Once stopping, the socket has nothing more to say and would only wake us without end.
    pollfd waits[2] = {{signals, POLLIN, 0}, {deadline < 0 ? kept.socket : -1, POLLRDHUP, 0}};
    const std::int64_t left = deadline < 0 ? -1 : std::max<std::int64_t>(0, deadline - now_ms());
    const int events = poll(waits, 2, static_cast<int>(left));
    if (events == 0) {
      kill(keeper, SIGKILL);
      deadline = now_ms() + kKeeperMarginMs;
    }
    bool stop = events > 0 && waits[1].revents != 0;
    if (events > 0 && waits[0].revents != 0 && asked_to_stop(signals)) {
      kill(keeper, SIGTERM);
      stop = true;
    }
    if (stop && deadline < 0) deadline = now_ms() + longest_ms + kKeeperMarginMs;
    pid_t ended;
    int status = 0;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
      if (ended == keeper) {
        kept_by_keeper = false;
        cleaned = status == 0;
      }
    if (ended < 0 && errno == ECHILD) kept_by_keeper = false;
  }
  kill_all_that_is_left();
  if (!cleaned) clean_up(kept, true);
  _exit(0);
}

// Everything we hold that is not ours to hold: another launch's socket or the user's terminal would live on with us.
void close_all_but(Kept& kept) {
  // Ours may have these numbers when this process was started without standard streams.
  const auto above_standard_streams = [](int fd) { return fd < 3 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : fd; };
  kept.null = above_standard_streams(kept.null);
  kept.socket = above_standard_streams(kept.socket);
  for (int i = 0; i < kept.count; ++i) {
    int& log = kept.processes[static_cast<std::size_t>(i)].log;
    log = above_standard_streams(log);
  }
  for (int fd = 0; fd <= 2; ++fd) dup2(kept.null, fd);
  int next = 3;
  for (;;) {
    int keep_fd = -1;  // the smallest kept descriptor from `next` on
    const auto consider = [&](int fd) {
      if (fd >= next && (keep_fd < 0 || fd < keep_fd)) keep_fd = fd;
    };
    consider(kept.socket);
    for (int i = 0; i < kept.count; ++i) consider(kept.processes[static_cast<std::size_t>(i)].log);
    const unsigned last = keep_fd < 0 ? ~0u : static_cast<unsigned>(keep_fd) - 1;
    if (static_cast<unsigned>(next) <= last) syscall(SYS_close_range, static_cast<unsigned>(next), last, 0u);
    if (keep_fd < 0) return;
    next = keep_fd + 1;
  }
}

[[noreturn]] void supervise(Kept& kept) {
  setsid();
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, nullptr);
  }
  close_all_but(kept);
  sigset_t watched;  // every signal is blocked here; these are read from the descriptor
  sigemptyset(&watched);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&watched, signal);
  // One for guard and keeper: a signalfd reports the signals of whoever reads it.
  const int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int guard_pipe[2];
  if (signals < 0 || pipe2(guard_pipe, O_CLOEXEC) != 0) _exit(1);
  const pid_t keeper = _Fork();
  if (keeper < 0) _exit(1);
  if (keeper == 0) {
    close(guard_pipe[1]);
    keep(kept, signals, guard_pipe[0]);
  }
  close(guard_pipe[0]);
  guard(kept, signals, keeper);
}

// ---- What runs in the process that launches. ----

double seconds_since_boot() { return static_cast<double>(now_ms()) / 1000.0; }

}  // namespace

Result<Supervisor> Supervisor::start(std::vector<SupervisedProcess> processes) {
  CHECK(!processes.empty() && processes.size() <= kMaxProcesses);
  Kept kept;
  double longest_s = 0;
  for (const SupervisedProcess& process : processes) {
    const double grace_s = std::clamp(process.stop_grace_s, 0.0, kMaxGraceS);
    longest_s = std::max(longest_s, grace_s);
    kept.processes[static_cast<std::size_t>(kept.count++)] = {&process.program,
                                                              process.log,
                                                              process.stop_signal,
                                                              static_cast<int>(std::lround(grace_s * 1000)),
                                                              0,
                                                              0,
                                                              process.cleanup ? &*process.cleanup : nullptr,
                                                              false};
  }
  if (any_cleanup(kept)) longest_s += kCleanupS;
  int sockets[2] = {-1, -1};
  kept.null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const bool opened = kept.null >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0;
  kept.socket = sockets[1];
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of ours may run in the forked child
  const pid_t guard_pid = opened ? fork() : -1;
  if (guard_pid == 0) supervise(kept);
  const int failed = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const SupervisedProcess& process : processes) close(process.log);
  if (kept.null >= 0) close(kept.null);
  if (sockets[1] >= 0) close(sockets[1]);
  if (guard_pid < 0) {
    if (sockets[0] >= 0) close(sockets[0]);
    return error("cannot start the supervisor of a launch: {}", strerror(failed));
  }
  return Supervisor(guard_pid, sockets[0], longest_s);
}

Supervisor::Supervisor(Supervisor&& other) noexcept
    : guard_(std::exchange(other.guard_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      grace_s_(other.grace_s_),
      gone_(std::exchange(other.gone_, true)),
      not_cleaned_(std::move(other.not_cleaned_)) {}

Supervisor::~Supervisor() {
  if (guard_ > 0) (void)stop();
}

Result<void> Supervisor::launch(int process) {
  const auto command = static_cast<unsigned char>(process);
  if (send(socket_, &command, 1, MSG_NOSIGNAL) != 1)
    return error("the supervisor of the launch is gone: {}", strerror(errno));
  return {};
}

std::optional<SupervisorEvent> Supervisor::next_event(double timeout_s) {
  if (gone_ || socket_ < 0) return std::nullopt;
  const double until = seconds_since_boot() + timeout_s;
  for (;;) {
    pollfd wait{socket_, POLLIN, 0};
    const double left_s = std::max(0.0, until - seconds_since_boot());
    const int ready = poll(&wait, 1, static_cast<int>(std::ceil(left_s * 1000)));
    if (ready == 0) return std::nullopt;
    if (ready < 0) continue;
    SupervisorEvent event{};
    const ssize_t size = recv(socket_, &event, sizeof event, MSG_DONTWAIT);
    if (size == static_cast<ssize_t>(sizeof event)) {
      if (event.kind == SupervisorEvent::Kind::cleaned && event.value != 0) not_cleaned_.push_back(event.process);
      return event;
    }
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    gone_ = true;  // both ends of guard and keeper are closed
    return std::nullopt;
  }
}

Result<void> Supervisor::stop() {
  if (guard_ < 0) return {};
  shutdown(socket_, SHUT_WR);
  const double until = seconds_since_boot() + grace_s_ + kStopMarginS;
  while (!gone_ && seconds_since_boot() < until) (void)next_event(until - seconds_since_boot());
  const bool in_time = gone_;
  if (!in_time) kill(guard_, SIGKILL);  // the keeper then sees its pipe end; it is stuck if we get here
  while (waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(std::exchange(socket_, -1));
  const pid_t guard_pid = std::exchange(guard_, -1);
  gone_ = true;
  if (in_time && !not_cleaned_.empty())
    return error(
        "what process {} of the launch left elsewhere (container, pod, job or remote process) could not be "
        "removed: the last lines of its log say why",
        not_cleaned_[0]);
  if (in_time) return {};
  return error(
      "processes of the launch (supervisor {}) are still there {} s after the stop signal, although killed: look "
      "for one in an uninterruptible wait",
      guard_pid, grace_s_ + kStopMarginS);
}

}  // namespace plumb::investigator
