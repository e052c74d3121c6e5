#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace plumb::server {

/// Something that runs until its answer has ended, and that a stop can end. Both calls from any thread.
class Stoppable {
 public:
  virtual ~Stoppable() = default;
  /// Its client gets a 503 or an error event.
  virtual void cancel_for_stop() = 0;
  /// Nothing that the generator says reaches it any more.
  virtual void detach() = 0;
};

/// The generations that are running, so that a stop can wait for them or end them. Thread-safe.
class RunningGenerations {
 public:
  void add(const std::shared_ptr<Stoppable>& generation);
  void remove(const std::shared_ptr<Stoppable>& generation);
  /// Waits until none runs; false when the time is over first.
  bool wait_until_none(std::chrono::milliseconds timeout);
  void cancel_all();
  void detach_all();

 private:
  std::vector<std::shared_ptr<Stoppable>> all() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<std::shared_ptr<Stoppable>> running_;
};

}  // namespace plumb::server
