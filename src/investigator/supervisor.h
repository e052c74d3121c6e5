#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/process.h"
#include "base/result.h"

namespace plumb::investigator {

/// What a supervisor reports about one of its processes.
struct SupervisorEvent {
  enum class Kind : int { started, exec_failed, ended, cleaned } kind;
  int process;  // index into the processes given at the start
  int pid;
  int value;  // exec_failed: errno; ended, cleaned: status of waitpid
};

/// One process of a launch, ready to be started.
struct SupervisedProcess {
  Program program;
  int log = -1;  // descriptor that takes stdout and stderr; closed by Supervisor::start
  int stop_signal = 15;
  double stop_grace_s = 5;
  /// Run when the process is gone, whatever ended it, if it was ever started: removes what it left on another host or
  /// in a container. At most kCleanupS.
  std::optional<Program> cleanup{};
};

/// Keeps the processes of one launch so that none of them, nor anything they start, outlives the launch.
///
/// Two small processes of ours sit between this one and the servers. The *keeper* starts and stops the servers; the
/// *guard* started the keeper. Both are child subreapers, so that whatever a server leaves behind, also with setsid and
/// double forks, becomes their child, and "no child is left" means that nothing is left.
///   - this process ends (kill -9 too) or asks to stop: its end of the socket closes; the keeper sends each stop
///   signal,
///     waits for the grace, kills what is left until it has no child, and ends; then the guard does.
///   - the keeper is killed: its direct children die with it (PR_SET_PDEATHSIG), the rest falls to the guard, which
///   kills
///     it.
///   - the guard is killed: the keeper sees its pipe end and stops everything.
/// After the fork both use async-signal-safe calls only, so that starting one from a threaded process is safe.
class Supervisor {
 public:
  static constexpr std::size_t kMaxProcesses = 64;
  static constexpr double kCleanupS = 60;

  /// Starts guard and keeper, not yet a process. 1 to kMaxProcesses processes.
  static Result<Supervisor> start(std::vector<SupervisedProcess> processes);
  ~Supervisor();
  Supervisor(Supervisor&& other) noexcept;
  Supervisor& operator=(Supervisor&&) = delete;

  /// Asks for the start of one process; `started` or `exec_failed` follows.
  Result<void> launch(int process);
  /// The next report if one comes within timeout_s; nothing on time-out and once the supervisor is gone (see gone()).
  std::optional<SupervisorEvent> next_event(double timeout_s);
  /// Guard and keeper have ended, and with them everything they kept.
  bool gone() const { return gone_; }
  /// Root of the launch's process tree.
  pid_t guard_pid() const { return guard_; }
  /// Stops everything and waits until all is gone: the longest grace, the cleanups and a few seconds at most; then
  /// kills and says so. Also an error: a cleanup that failed.
  Result<void> stop();

 private:
  Supervisor(pid_t guard, int socket, double grace_s) : guard_(guard), socket_(socket), grace_s_(grace_s) {}

  pid_t guard_;
  int socket_;
  double grace_s_;
  bool gone_ = false;
  std::vector<int> not_cleaned_;  // processes whose cleanup failed
};

}  // namespace plumb::investigator
