#include "base/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/lanes/lanes.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "base/machine_limits.inc"
#include "base/lanes/each_isa.inc"

float run_multiply_adds(std::int64_t rounds, float x) { PLUMB_ON_BEST_ISA(multiply_adds(rounds, x)); }
std::int64_t round_size() { PLUMB_ON_BEST_ISA(operations_a_round()); }
float run_reads(const float* x, std::int64_t count) { PLUMB_ON_BEST_ISA(read_all(x, count)); }

using Clock = std::chrono::steady_clock;
constexpr std::chrono::duration<double> kRun{0.02};
constexpr int kRuns = 8;
// Results go here, so that no work can be left out.
std::atomic<float> sink;

// What all threads together do in a second: each calls work(thread), which returns the amount it did, until the run is
// over.
template <class Work>
double rate(int threads, Work&& work) {
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::atomic<int> ready{0};
    std::vector<double> rates(static_cast<std::size_t>(threads), 0.0);
    const auto measure = [&](int thread) {
      ++ready;
      while (ready.load() < threads) std::this_thread::yield();
      const auto start = Clock::now();
      double amount = 0;
      std::chrono::duration<double> passed{0};
      while (passed < kRun) {
        amount += work(thread);
        passed = Clock::now() - start;
      }
      rates[static_cast<std::size_t>(thread)] = amount / passed.count();
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(measure, i);
    measure(0);
    for (std::thread& other : others) other.join();
    double sum = 0;
    for (const double one : rates) sum += one;
    best = std::max(best, sum);
  }
  return best;
}

}  // namespace

double measure_multiply_adds(int threads) {
  CHECK(threads >= 1);
  constexpr std::int64_t kRounds = 20000;
  return rate(threads, [](int) {
    sink = run_multiply_adds(kRounds, 0.5f);
    return static_cast<double>(kRounds * round_size());
  });
}

double measure_reads(int threads, std::int64_t bytes) {
  CHECK(threads >= 1);
  constexpr std::int64_t kBlock = 64;  // floats
  const std::int64_t count =
      std::max(std::int64_t{1}, bytes / static_cast<std::int64_t>(sizeof(float)) / kBlock / threads) * kBlock;
  std::vector<std::vector<float>> parts(static_cast<std::size_t>(threads),
                                        std::vector<float>(static_cast<std::size_t>(count), 1.0f));
  const std::int64_t repeats = std::max<std::int64_t>(1, 65536 / count);  // a clock is read seldom
  return rate(threads, [&](int thread) {
    for (std::int64_t i = 0; i < repeats; ++i) sink = run_reads(parts[static_cast<std::size_t>(thread)].data(), count);
    return static_cast<double>(repeats * count) * sizeof(float);
  });
}

}  // namespace plumb
