#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "investigator/deployment.h"
#include "investigator/marks.h"

namespace plumb::investigator {

/// What is filled into the marks of one launch.
struct LaunchNames {
  std::map<std::string, int> ports;  // by process
  std::string instance;              // begins the name of every container, pod and job of this launch
  std::string source;                // folder of {source}; "" without [source]
};

/// A process as it is started: an argv, rendered by the template that `via` names, and what removes whatever that
/// program leaves elsewhere (a container, a pod, a job, a process on another host) when it ends.
struct RenderedProcess {
  Command command;
  std::optional<Command> cleanup;
};

/// The process of a variant before its template: its command with the args of the applied sides, its env with theirs
/// and with CUDA_VISIBLE_DEVICES of `gpus`, marks unfilled.
Command plain_command(const Deployment& deployment, const Variant& variant, const ProcessSpec& process);

/// Renders a process: marks filled, then the template. Errors: a variable of {env:NAME} is not set.
Result<RenderedProcess> render_process(const Deployment& deployment, const Variant& variant, const ProcessSpec& process,
                                       const LaunchNames& names);
/// The same with the marks as they are written, for people: what --plan shows.
RenderedProcess render_unfilled(const Deployment& deployment, const Variant& variant, const ProcessSpec& process);

/// "NAME=value program argument": one line for a POSIX shell. The env is left out where it is empty.
std::string shell_line(const Command& command);
std::string shell_quoted(const std::string& word);

/// Every text of the deployment in which marks are filled: commands, env, args, urls, models and headers.
std::vector<std::string> texts_with_marks(const Deployment& deployment);

/// The value of an environment variable named by {env:NAME} or key_env. Errors: it is not set.
Result<std::string> value_from_environment(const std::string& name);

/// The text with each {env:NAME} replaced. Errors: as above.
Result<std::string> fill_from_environment(const std::string& text);
/// The text with each {instance:NAME} replaced.
std::string fill_instances(const std::string& text, const LaunchNames& names);

/// Whether the process's sockets are those of this machine's network: local, and docker without a host.
bool listens_here(const ProcessSpec& process);
/// The host at which the process's port answers: 127.0.0.1, or its `host`; "" where nobody says (a pod or job).
std::string host_of(const ProcessSpec& process);

}  // namespace plumb::investigator
