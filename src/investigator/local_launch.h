#pragma once

// What launch.cpp makes: for it alone.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "investigator/launch.h"
#include "investigator/launch_command.h"
#include "investigator/scrubbed_log.h"
#include "investigator/supervisor.h"

namespace plumb::investigator {

struct LogFile {
  std::filesystem::path path;
  std::uint64_t begin = 0;  // size before this launch: an earlier one may have used the same number
};

struct Ended {
  std::size_t process = 0;
  int status = 0;
};

/// The processes of a launch under their supervisor; made by LaunchStart, which fills it in.
class LocalLaunch : public Launch {
 public:
  ~LocalLaunch() override { (void)stop(); }

  const std::vector<std::string>& urls() const override { return urls_; }
  const std::vector<EndpointSpec>& endpoints() const override { return endpoints_; }
  double ready_s() const override { return ready_s_; }

  bool alive() override;

  std::string last_log(int lines) const override;

  Result<void> stop() override;

  // The rest is for launch_variant.

  // Like stop, but of a launch that failed: its port may well be somebody else's.
  Result<void> end_processes();

  // The next report of the supervisor within timeout_s, with the state above brought up to date.
  std::optional<SupervisorEvent> take_event(double timeout_s);

  std::string describe_end(int lines) const;

 private:
  friend class LaunchStart;

  std::vector<std::string> names_;  // of the processes
  std::vector<LogFile> logs_;
  std::vector<ScrubbedLog> scrubbed_;
  std::vector<std::string> urls_;
  std::vector<EndpointSpec> endpoints_;
  LaunchNames fill_;
  std::vector<int> fixed_ports_;  // written in the deployment file
  std::vector<int> ports_here_;   // chosen by us, of processes that listen on this machine
  std::vector<std::pair<ProcessSpec, std::map<int, std::int64_t>>> memory_before_;
  std::optional<Supervisor> supervisor_;
  bool supervised_ = false;
  std::optional<Ended> ended_;
  bool lost_ = false;
  double ready_s_ = 0;

  void take_events(double timeout_s);

  Result<void> wait_until_freed() const;

  Result<void> wait_until_closed() const;

  mutable std::mutex mutex_;
};

}  // namespace plumb::investigator
