#include "runtime/runtime.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/memory_plan.h"
#include "runtime/scheduler.h"

namespace plumb {
namespace {

/// The scheduler and the one thread that runs it.
class Runtime final : public Generator {
 public:
  explicit Runtime(std::unique_ptr<Scheduler> scheduler)
      : scheduler_(std::move(scheduler)), thread_([this] { run(); }) {}

  ~Runtime() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  tl::expected<std::uint64_t, Rejection> submit(GenerateRequest request, std::shared_ptr<TokenSink> sink) override;

  void cancel(std::uint64_t id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
    wake_.notify_all();
  }

  GeneratorStats stats() const override {
    const std::lock_guard lock(mutex_);
    GeneratorStats stats = scheduler_->stats();
    stats.waiting += static_cast<std::int64_t>(arrived_.size());
    stats.rejected = rejected_;
    return stats;
  }

  std::int64_t max_context_tokens() const override { return scheduler_->plan().max_context_tokens; }

 private:
  void run();
  bool take_orders(bool busy);

  std::unique_ptr<Scheduler> scheduler_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Sequence>> arrived_;  // not yet in the scheduler's queue
  std::vector<std::uint64_t> cancelled_;
  std::uint64_t next_id_ = 1;
  std::uint64_t rejected_ = 0;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

tl::expected<std::uint64_t, Rejection> Runtime::submit(GenerateRequest request, std::shared_ptr<TokenSink> sink) {
  const RuntimeOptions& plan = scheduler_->plan();
  auto refused = refuse_request(request, plan, scheduler_->config().vocab_size);
  const std::lock_guard lock(mutex_);
  if (!refused && stopping_) refused = Rejection{Rejection::Kind::stopping, "the server is stopping"};
  const std::int64_t waiting = scheduler_->stats().waiting + static_cast<std::int64_t>(arrived_.size());
  if (!refused && waiting >= plan.max_waiting)
    refused = Rejection{Rejection::Kind::overloaded, fmt::format("{} requests are waiting already", waiting)};
  if (refused) {
    ++rejected_;
    return tl::unexpected(*refused);
  }
  const std::uint64_t id = next_id_++;
  arrived_.push_back(std::make_unique<Sequence>(id, std::move(request), std::move(sink)));
  wake_.notify_all();
  return id;
}

void Runtime::run() {
  bool busy = false;
  while (take_orders(busy)) busy = scheduler_->step();
  scheduler_->cancel_all();
}

// Waits while there is nothing to do. False when it is time to stop.
bool Runtime::take_orders(bool busy) {
  std::vector<std::uint64_t> cancelled;
  bool stopping = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return busy || stopping_ || !arrived_.empty() || !cancelled_.empty(); });
    for (auto& sequence : arrived_) scheduler_->add(std::move(sequence));
    arrived_.clear();
    cancelled.swap(cancelled_);
    stopping = stopping_;
  }
  // Sinks are told without the lock: they may submit or cancel.
  for (const std::uint64_t id : cancelled) scheduler_->cancel(id);
  return !stopping;
}

}  // namespace

Result<std::unique_ptr<Generator>> make_generator(std::shared_ptr<const Model> model,
                                                  std::shared_ptr<Executor> executor, const RuntimeOptions& options) {
  auto scheduler = Scheduler::make(std::move(model), std::move(executor), options);
  if (!scheduler) return tl::unexpected(scheduler.error());
  return std::make_unique<Runtime>(std::move(*scheduler));
}

}  // namespace plumb
