#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/result.h"

namespace plumb {

/// What to run: argv (no shell), variables added to this process's environment, and where.
struct Command {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
  std::string cwd;  // empty: this process's
};

/// A Command resolved and laid out so that a forked child can execute it without allocating.
/// Program names without a slash are looked up in the PATH of the command's own environment; those with one are
/// relative to this process's directory, also when the command's cwd is another.
class Program {
 public:
  /// Fails when the program does not exist or cannot be executed, when cwd is no directory, and on NUL in any string.
  static Result<Program> prepare(const Command& command);

  /// Changes into cwd and executes; returns errno when that fails. Safe in a forked child of a threaded process.
  int execute() const noexcept;

 private:
  std::string path_, cwd_;
  std::vector<std::string> argv_, env_;  // own the bytes the pointers below refer to
  std::vector<char*> argv_pointers_, env_pointers_;
};

/// "exit status 3" or "killed by signal 9 (Killed)" for a status of waitpid.
std::string describe_exit_status(int status);

/// Descriptors of a child; -1 is /dev/null. Every other descriptor of ours must be close-on-exec.
struct ChildDescriptors {
  int in = -1, out = -1, err = -1;
  std::vector<int> inherited;  // kept open under the same numbers
};

/// A child process that leads a process group of its own. The destructor kills the group and waits for the child.
/// Children of the child that leave its group are not followed: servers run under investigator/supervisor.h instead.
class ChildProcess {
 public:
  static Result<ChildProcess> start(const Command& command, const ChildDescriptors& descriptors = {});
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  pid_t pid() const { return pid_; }
  /// The status of waitpid once the child has ended, nothing when it still runs after timeout_s.
  std::optional<int> wait(double timeout_s);
  /// Sends the signal to the child's process group; nothing once the child has been waited for.
  void signal_group(int signal) noexcept;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  void reap() noexcept;

  pid_t pid_ = -1;
  std::optional<int> status_;
};

}  // namespace plumb
