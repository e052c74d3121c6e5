#include "investigator/local_launch.h"

#include <chrono>
#include <thread>

#include "base/process.h"
#include "base/process_tree.h"
#include "investigator/gpu_memory.h"
#include "investigator/log_tail.h"

namespace plumb::investigator {
namespace {

constexpr double kFirstLookS = 0.02;
constexpr double kPortClosingS = 2;

}  // namespace

bool LocalLaunch::alive() {
  const std::lock_guard lock(mutex_);
  if (!supervised_) return true;
  if (supervisor_) take_events(0);
  return supervisor_ && !ended_ && !lost_;
}

std::string LocalLaunch::last_log(int lines) const {
  const std::lock_guard lock(mutex_);
  if (ended_) return describe_end(lines);
  std::string text = lost_ ? "the supervisor of the launch was killed\n" : "";
  for (std::size_t i = 0; i < logs_.size(); ++i)
    text += fmt::format("{}process {}, log {}:\n{}", i == 0 ? "" : "\n", names_[i], logs_[i].path.string(),
                        tail_of_log(logs_[i].path, logs_[i].begin, lines));
  return text;
}

Result<void> LocalLaunch::stop() {
  const std::lock_guard lock(mutex_);
  if (!supervisor_) return {};
  if (auto ended = end_processes(); !ended) return ended;
  if (auto closed = wait_until_closed(); !closed) return closed;
  return wait_until_freed();
}

Result<void> LocalLaunch::end_processes() {
  if (!supervisor_) return {};
  auto stopped = supervisor_->stop();
  supervisor_.reset();
  scrubbed_.clear();  // every writer is gone: the logs are complete
  return stopped;
}

std::optional<SupervisorEvent> LocalLaunch::take_event(double timeout_s) {
  auto event = supervisor_->next_event(timeout_s);
  if (event && event->kind == SupervisorEvent::Kind::ended && !ended_)
    ended_ = Ended{static_cast<std::size_t>(event->process), event->value};
  lost_ = supervisor_->gone();
  return event;
}

std::string LocalLaunch::describe_end(int lines) const {
  const LogFile& log = logs_[ended_->process];
  if (ended_->process < scrubbed_.size()) scrubbed_[ended_->process].settle();
  const std::string tail = tail_of_log(log.path, log.begin, lines);
  return fmt::format("process {} ended: {}; {} {}{}", names_[ended_->process], describe_exit_status(ended_->status),
                     tail.empty() ? "it wrote nothing to" : "the last lines of its log", log.path.string(),
                     tail.empty() ? "" : ":\n" + tail);
}

void LocalLaunch::take_events(double timeout_s) {
  while (take_event(timeout_s)) {
  }
}

Result<void> LocalLaunch::wait_until_freed() const {
  for (const auto& [process, before] : memory_before_)
    if (auto freed = wait_for_gpu_memory(process, before); !freed) return freed;
  return {};
}

Result<void> LocalLaunch::wait_until_closed() const {
  std::vector<int> ports = fixed_ports_;
  ports.insert(ports.end(), ports_here_.begin(), ports_here_.end());
  const auto start = std::chrono::steady_clock::now();
  const auto passed_s = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (const int port : ports) {
    auto listeners = listening_sockets(port);
    while (!listeners.empty() && passed_s() < kPortClosingS) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kFirstLookS));
      listeners = listening_sockets(port);
    }
    if (!listeners.empty())
      return error("port {} is still open after the launch was stopped: {} holds it", port,
                   describe_holder(listeners[0]));
  }
  return {};
}

}  // namespace plumb::investigator
