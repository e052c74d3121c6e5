#include "server/running_generations.h"

namespace plumb::server {

void RunningGenerations::add(const std::shared_ptr<Stoppable>& generation) {
  const std::lock_guard lock(mutex_);
  running_.insert(generation);
}

void RunningGenerations::remove(const std::shared_ptr<Stoppable>& generation) {
  {
    const std::lock_guard lock(mutex_);
    running_.erase(generation);
  }
  changed_.notify_all();
}

bool RunningGenerations::wait_until_none(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return running_.empty(); });
}

std::vector<std::shared_ptr<Stoppable>> RunningGenerations::all() const {
  const std::lock_guard lock(mutex_);
  return {running_.begin(), running_.end()};
}

void RunningGenerations::cancel_all() {
  for (const auto& generation : all()) generation->cancel_for_stop();
}

void RunningGenerations::detach_all() {
  for (const auto& generation : all()) generation->detach();
  const std::lock_guard lock(mutex_);
  running_.clear();
}

}  // namespace plumb::server
