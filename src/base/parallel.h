#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace plumb {

/// A reference to a callable body(begin, end) of a loop; nothing is copied, so the callable must outlive the loop.
class LoopBody {
 public:
  template <class Body>
    requires(!std::is_same_v<std::remove_cvref_t<Body>, LoopBody>)
  LoopBody(Body&& body)  // NOLINT(*-explicit-*)
      : object_(const_cast<void*>(static_cast<const void*>(&body))),
        call_([](void* object, std::int64_t begin, std::int64_t end) {
          (*static_cast<std::remove_reference_t<Body>*>(object))(begin, end);
        }) {}

  void operator()(std::int64_t begin, std::int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int64_t);
};

/// Runs a loop over [0, count) in contiguous pieces, possibly on several threads, and returns when all are done. What a
/// piece computes must not depend on where the pieces are cut.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Threads that compute: a hint for how finely to cut.
  virtual int threads() const { return 1; }
  virtual void parallel_for(std::int64_t count, LoopBody body) = 0;
};

/// Runs everything on the calling thread.
class InlineExecutor final : public Executor {
 public:
  void parallel_for(std::int64_t count, LoopBody body) override {
    if (count > 0) body(0, count);
  }
};

/// The calling thread and `threads` - 1 others. One loop at a time: a second caller waits; a body must not start a loop
/// of its own. A body must not throw.
///
/// Loops of a forward pass follow each other within microseconds, less than it takes to wake a thread. So a thread that
/// has nothing to do looks for the next loop for some tens of microseconds and then sleeps: an idle pool uses no
/// processor time.
class ThreadPool final : public Executor {
 public:
  /// `threads` in [1, 256]. Throws std::system_error when the system does not give so many.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const override;
  void parallel_for(std::int64_t count, LoopBody body) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb
