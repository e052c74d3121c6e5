#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace plumb {

/// Runs a loop over [0, count) in contiguous pieces, possibly on several threads, and returns when all are done. What a
/// piece computes must not depend on where the pieces are cut.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Threads that compute: a hint for how finely to cut.
  virtual int threads() const { return 1; }
  virtual void parallel_for(std::int64_t count,
                            const std::function<void(std::int64_t begin, std::int64_t end)>& body) = 0;
};

/// Runs everything on the calling thread.
class InlineExecutor final : public Executor {
 public:
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) override {
    if (count > 0) body(0, count);
  }
};

/// The calling thread and `threads` - 1 others, which sleep between loops. One loop at a time: a second caller waits;
/// a body must not start a loop of its own. A body must not throw.
class ThreadPool final : public Executor {
 public:
  /// `threads` in [1, 256]. Throws std::system_error when the system does not give so many.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const override;
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb
