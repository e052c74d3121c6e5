#include "base/parallel.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace plumb {
namespace {

// More pieces than threads, so that a thread that was descheduled does not hold up the rest.
constexpr std::int64_t kPiecesPerThread = 4;

}  // namespace

struct ThreadPool::Impl {
  std::mutex one_loop;  // held by the caller for the whole loop
  std::mutex mutex;     // guards everything below
  std::condition_variable work;
  std::condition_variable done;
  const std::function<void(std::int64_t, std::int64_t)>* body = nullptr;  // null: no loop is running
  std::int64_t count = 0;
  std::int64_t pieces = 0;
  std::int64_t next = 0;      // first piece nobody has taken
  std::int64_t finished = 0;  // pieces that are done
  bool stop = false;
  std::vector<std::thread> threads;

  // Also of a pool whose last threads the system refused: those that run are ended.
  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // Takes pieces until none is left. Called and left with the lock held.
  void take_pieces(std::unique_lock<std::mutex>& lock) {
    while (next < pieces) {
      const std::int64_t piece = next++;
      const std::int64_t begin = count * piece / pieces, end = count * (piece + 1) / pieces;
      const auto* run = body;
      lock.unlock();
      (*run)(begin, end);
      lock.lock();
      if (++finished == pieces) done.notify_one();
    }
  }

  void worker() {
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return stop || next < pieces; });
      if (stop) return;
      take_pieces(lock);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  CHECK(threads >= 1 && threads <= 256);
  for (int i = 1; i < threads; ++i) impl_->threads.emplace_back([impl = impl_.get()] { impl->worker(); });
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return static_cast<int>(impl_->threads.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  if (count == 1 || impl_->threads.empty()) return body(0, count);
  const std::lock_guard one_loop(impl_->one_loop);
  std::unique_lock lock(impl_->mutex);
  impl_->body = &body;
  impl_->count = count;
  impl_->pieces = std::min(count, kPiecesPerThread * static_cast<std::int64_t>(impl_->threads.size() + 1));
  impl_->next = impl_->finished = 0;
  impl_->work.notify_all();
  impl_->take_pieces(lock);
  impl_->done.wait(lock, [&] { return impl_->finished == impl_->pieces; });
  impl_->next = impl_->pieces = 0;
  impl_->body = nullptr;
}

}  // namespace plumb
