#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "base/result.h"
#include "investigator/deployment.h"

namespace plumb::investigator {

/// Why a variant could not be launched.
struct LaunchFailure {
  enum class Kind {
    infeasible,  // a process died or said it cannot run so: this combination, learnt and excluded, never a failed trial
    not_ready,   // alive, but no real generation in time
    stale,       // somebody else answers on our port
    environment  // we could not even start it (no such program, no permission, no free port)
  } kind;
  std::string message;  // with the last log lines of the process
};

struct LaunchOptions {
  std::filesystem::path log_folder;  // one file a process and launch: <log_folder>/<launch_id>-<process>.log
  std::int64_t launch_id = 0;
  std::function<void(const std::string&)> progress;  // may be empty
  std::filesystem::path tree{};                      // folder of {source}: patched and built before the start
};

/// A running variant. The destructor stops it: signal, grace, kill of the whole process group, port closed.
class Launch {
 public:
  virtual ~Launch() = default;
  /// Base URLs of the endpoints, ports filled in.
  virtual const std::vector<std::string>& urls() const = 0;
  /// The endpoints as they are asked: marks of model and headers filled in, the key still by its variable's name.
  virtual const std::vector<EndpointSpec>& endpoints() const = 0;
  /// Seconds from start to the first generation.
  virtual double ready_s() const = 0;
  /// False as soon as a process of it has ended; `last_log` then says why.
  virtual bool alive() = 0;
  virtual std::string last_log(int lines) const = 0;
  /// Stops now and waits until the port is closed and the process group is gone.
  virtual Result<void> stop() = 0;
};

/// Starts every process of the variant under a supervisor of ours (own process group, child subreaper, a pipe to this
/// process whose end ends the group: no kill leaves an orphan) and waits until each is ready by a real generation
/// answered by *our* process (the socket's owner is in our process group; where it runs elsewhere, nobody answered on
/// its port before).
tl::expected<std::unique_ptr<Launch>, LaunchFailure> launch_variant(const Deployment& deployment,
                                                                    const Variant& variant,
                                                                    const LaunchOptions& options);

}  // namespace plumb::investigator
