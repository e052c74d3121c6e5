#include "base/process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace plumb {
namespace {

constexpr std::chrono::milliseconds kWaitStep{5};

Result<std::string> executable_at(const std::string& path, const std::string& name) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return error("program {}: {}", name, strerror(errno));
  if (!S_ISREG(info.st_mode)) return error("program {}: not a file", name);
  if (access(path.c_str(), X_OK) != 0) return error("program {}: {} (is it executable?)", name, strerror(errno));
  return path;
}

Result<std::string> find_program(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos) {
    std::error_code failed;
    const auto absolute = std::filesystem::absolute(name, failed);
    if (failed) return error("program {}: {}", name, failed.message());
    return executable_at(absolute.string(), name);
  }
  for (std::size_t begin = 0; begin <= search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', begin), search_path.size());
    const std::string folder = search_path.substr(begin, end - begin);
    if (auto found = executable_at((folder.empty() ? "." : folder) + "/" + name, name)) return found;
    begin = end + 1;
  }
  return error("program {} is in no folder of PATH ({}): install it or write its full path", name, search_path);
}

std::map<std::string, std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const auto equals = text.find('='); equals != std::string::npos)
      merged[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : added) merged[name] = value;
  return merged;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

Result<void> check_strings(const Command& command) {
  if (command.argv.empty() || command.argv[0].empty()) return error("command is empty: it must begin with a program");
  for (const std::string& argument : command.argv)
    if (has_nul(argument)) return error("program {}: an argument holds a NUL byte", command.argv[0]);
  for (const auto& [name, value] : command.env)
    if (name.empty() || name.find('=') != std::string::npos || has_nul(name) || has_nul(value))
      return error("program {}: \"{}\" is no name, or its value no value, of an environment variable", command.argv[0],
                   name);
  return {};
}

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(const Program& program, int in, int out, int err, const std::vector<int>& inherited,
                         int report) {
  setpgid(0, 0);
  // Moved above the numbers that dup2 is about to overwrite.
  const bool moved = (in = fcntl(in, F_DUPFD_CLOEXEC, 3)) >= 0 && (out = fcntl(out, F_DUPFD_CLOEXEC, 3)) >= 0 &&
                     (err = fcntl(err, F_DUPFD_CLOEXEC, 3)) >= 0;
  bool ready = moved && dup2(in, 0) == 0 && dup2(out, 1) == 1 && dup2(err, 2) == 2;
  for (const int descriptor : inherited) ready = ready && fcntl(descriptor, F_SETFD, 0) == 0;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int failed = ready ? program.execute() : errno;
  [[maybe_unused]] const auto written = write(report, &failed, sizeof failed);
  _exit(127);
}

}  // namespace

Result<Program> Program::prepare(const Command& command) {
  if (auto checked = check_strings(command); !checked) return tl::unexpected(checked.error());
  const auto environment = merged_environment(command.env);
  const auto search = environment.find("PATH");
  auto path = find_program(command.argv[0], search == environment.end() ? "/usr/bin:/bin" : search->second);
  if (!path) return tl::unexpected(path.error());
  std::error_code failed;
  if (!command.cwd.empty() && !std::filesystem::is_directory(command.cwd, failed))
    return error("program {}: its cwd {} is not a directory", command.argv[0], command.cwd);

  Program program;
  program.path_ = *path;
  program.cwd_ = command.cwd;
  program.argv_ = command.argv;
  for (const auto& [name, value] : environment) program.env_.push_back(name + "=" + value);
  // The pointers survive moves of the Program: moving a vector keeps its elements where they are.
  program.argv_pointers_ = pointers_to(program.argv_);
  program.env_pointers_ = pointers_to(program.env_);
  return program;
}

int Program::execute() const noexcept {
  if (!cwd_.empty() && chdir(cwd_.c_str()) != 0) return errno;
  execve(path_.c_str(), argv_pointers_.data(), env_pointers_.data());
  return errno;
}

std::string describe_exit_status(int status) {
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("wait status {}", status);
}

Result<ChildProcess> ChildProcess::start(const Command& command, const ChildDescriptors& descriptors) {
  const auto program = Program::prepare(command);
  if (!program) return tl::unexpected(program.error());
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  int report[2] = {-1, -1};
  if (null < 0 || pipe2(report, O_CLOEXEC) != 0) {
    const int failed = errno;
    if (null >= 0) close(null);
    return error("program {}: cannot open /dev/null or a pipe: {}", command.argv[0], strerror(failed));
  }
  const auto or_null = [&](int descriptor) { return descriptor < 0 ? null : descriptor; };
  const pid_t pid = fork();
  if (pid == 0)
    become(*program, or_null(descriptors.in), or_null(descriptors.out), or_null(descriptors.err), descriptors.inherited,
           report[1]);
  const int fork_failed = errno;
  close(null);
  close(report[1]);
  int failed = 0;
  if (pid > 0) {
    setpgid(pid, pid);  // also here: whoever signals the group next must find it
    while (read(report[0], &failed, sizeof failed) < 0 && errno == EINTR) {
    }
  }
  close(report[0]);
  if (pid < 0) return error("program {}: cannot fork: {}", command.argv[0], strerror(fork_failed));
  ChildProcess child(pid);
  if (failed != 0) return error("program {}: {}", command.argv[0], strerror(failed));
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || status_) return;
  kill(pid_, SIGKILL);
  reap();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

void ChildProcess::reap() noexcept {
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  // What the child left in its group goes too, while the unreaped child still keeps the number from being reused.
  kill(-pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  status_ = status;
}

std::optional<int> ChildProcess::wait(double timeout_s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  while (!status_ && pid_ > 0) {
    siginfo_t ended{};
    const int result = waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT | WNOHANG);
    if ((result == 0 && ended.si_pid == pid_) || (result < 0 && errno == ECHILD))
      reap();
    else if (std::chrono::steady_clock::now() >= until)
      break;
    else
      std::this_thread::sleep_for(kWaitStep);
  }
  return status_;
}

void ChildProcess::signal_group(int signal) noexcept {
  if (pid_ > 0 && !status_) kill(-pid_, signal);
}

}  // namespace plumb
