#include "base/parallel.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace plumb {
namespace {

TEST(ThreadPool, EveryIndexRunsExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const std::int64_t count : {0, 1, 2, 7, 31, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(count), 0);
      pool.parallel_for(count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++runs[static_cast<std::size_t>(i)];
      });
      for (const int n : runs) EXPECT_EQ(n, 1) << threads << " threads, " << count;
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the address space themselves
TEST(ThreadPoolDeathTest, ThreadsThatTheSystemRefusesAreAnExceptionNotTheEnd) {
  const auto try_in_little_memory = [] {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(pages) * 4096 + (rlim_t{200} << 20);
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(1);
    try {
      const ThreadPool pool(256);
    } catch (const std::system_error&) {
      std::_Exit(7);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(try_in_little_memory(), testing::ExitedWithCode(7), "");
}
#endif

TEST(ThreadPool, ManyShortLoopsFinish) {
  ThreadPool pool(3);
  std::int64_t total = 0;
  for (int loop = 0; loop < 2000; ++loop) {
    std::atomic<std::int64_t> sum{0};
    pool.parallel_for(5, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    total += sum;
  }
  EXPECT_EQ(total, 10000);
}

TEST(ThreadPool, CallersOnSeveralThreadsTakeTurns) {
  ThreadPool pool(2);
  std::vector<std::int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (std::size_t c = 0; c < sums.size(); ++c)
    callers.emplace_back([&, c] {
      for (int loop = 0; loop < 100; ++loop) {
        std::vector<std::int64_t> parts(64, 0);
        pool.parallel_for(64, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) parts[static_cast<std::size_t>(i)] = i;
        });
        for (const std::int64_t part : parts) sums[c] += part;
      }
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, 100 * 64 * 63 / 2);
}

// Loops of every length right after each other: a thread that is late for one must not take a piece of the next with
// the wrong body.
TEST(ThreadPool, ALateThreadDoesNotMixLoops) {
  ThreadPool pool(4);
  for (int loop = 0; loop < 3000; ++loop) {
    const std::int64_t count = 2 + loop % 13;
    std::vector<int> of_this_loop(static_cast<std::size_t>(count), -1);
    pool.parallel_for(count, [&, loop](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) of_this_loop[static_cast<std::size_t>(i)] = loop;
    });
    for (const int value : of_this_loop) ASSERT_EQ(value, loop);
  }
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(ThreadPool, AnIdlePoolUsesNoProcessorTime) {
  ThreadPool pool(4);
  std::atomic<int> runs{0};
  for (int i = 0; i < 5; ++i) {
    pool.parallel_for(8, [&](std::int64_t begin, std::int64_t end) { runs += static_cast<int>(end - begin); });
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_LT(processor_seconds() - before, 0.05);  // three threads that looked on would need up to 0.6
  }
  EXPECT_EQ(runs, 40);
}

}  // namespace
}  // namespace plumb
