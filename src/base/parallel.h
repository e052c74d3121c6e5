#pragma once

#include <cstdint>
#include <functional>

namespace plumb {

/// Runs a loop over [0, count) in contiguous pieces, possibly on several threads, and returns when all are done. What a
/// piece computes must not depend on where the pieces are cut.
class Executor {
 public:
  virtual ~Executor() = default;
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

}  // namespace plumb
