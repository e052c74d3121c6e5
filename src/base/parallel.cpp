#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plumb {
namespace {

// More pieces than threads, so that a thread that was descheduled does not hold up the rest.
constexpr std::uint32_t kPiecesPerThread = 4;
// Looks at a variable before sleeping: some 30 microseconds.
constexpr int kLooks = 2000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Returns when done() holds: looks for a while, then sleeps on `variable`, whose every change makes done() worth
// another look.
template <class Done>
void wait_until(const std::atomic<std::uint32_t>& variable, int looks, Done&& done) {
  for (int i = 0; i < looks; ++i) {
    if (done()) return;
    pause();
  }
  while (true) {
    const std::uint32_t seen = variable.load(std::memory_order_acquire);
    if (done()) return;
    variable.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace

struct ThreadPool::Impl {
  std::mutex one_loop;  // held by the caller for the whole loop
  int looks = 0;
  std::vector<std::thread> threads;

  // Also of a pool whose last threads the system refused: those that run are ended.
  ~Impl() {
    stop.store(true, std::memory_order_release);
    start_loop(0);
    for (std::thread& thread : threads) thread.join();
  }

  // The loop that is running. Written before `state` tells of its pieces, and again only after all of them are done, so
  // whoever takes a piece may read it.
  const LoopBody* body = nullptr;
  std::int64_t count = 0;
  std::uint32_t pieces = 0;

  // Number of the loop (upper half) and of its pieces that nobody has taken (lower half): a piece can be taken of this
  // loop only.
  alignas(64) std::atomic<std::uint64_t> state{0};
  alignas(64) std::atomic<std::uint32_t> loops{0};  // loops started; what idle threads wait for
  alignas(64) std::atomic<std::uint32_t> finished{0};
  std::atomic<bool> stop{false};

  void take_pieces() {
    std::uint64_t seen = state.load(std::memory_order_acquire);
    while (static_cast<std::uint32_t>(seen) != 0) {
      if (!state.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) continue;
      const std::int64_t total = pieces, piece = total - static_cast<std::uint32_t>(seen);
      (*body)(count* piece / total, count * (piece + 1) / total);
      // Read before the loop is told to be done: afterwards the variables may belong to the next one.
      if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == total) finished.notify_one();
      seen = state.load(std::memory_order_acquire);
    }
  }

  void worker() {
    std::uint32_t seen = 0;
    while (true) {
      wait_until(loops, looks, [&] { return loops.load(std::memory_order_acquire) != seen; });
      seen = loops.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      take_pieces();
    }
  }

  void start_loop(std::uint32_t piece_count) {
    const std::uint32_t number = loops.load(std::memory_order_relaxed) + 1;
    pieces = piece_count;
    finished.store(0, std::memory_order_relaxed);
    state.store(std::uint64_t{number} << 32 | piece_count, std::memory_order_release);
    loops.store(number, std::memory_order_release);
    loops.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  CHECK(threads >= 1 && threads <= 256);
  // With more threads than processors a thread that looks keeps another from computing.
  impl_->looks = threads <= static_cast<int>(std::thread::hardware_concurrency()) ? kLooks : 0;
  for (int i = 1; i < threads; ++i) impl_->threads.emplace_back([impl = impl_.get()] { impl->worker(); });
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return static_cast<int>(impl_->threads.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t count, LoopBody body) {
  if (count <= 0) return;
  if (count == 1 || impl_->threads.empty()) return body(0, count);
  const std::lock_guard one_loop(impl_->one_loop);
  const auto pieces = static_cast<std::uint32_t>(
      std::min<std::int64_t>(count, kPiecesPerThread * static_cast<std::int64_t>(threads())));
  impl_->body = &body;
  impl_->count = count;
  impl_->start_loop(pieces);
  impl_->take_pieces();
  wait_until(impl_->finished, impl_->looks, [&] { return impl_->finished.load(std::memory_order_acquire) == pieces; });
}

}  // namespace plumb
