#include "runtime/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <thread>

#include "base/isa.h"
#include "base/machine_limits.h"
#include "base/rng.h"
#include "engine/cost.h"
#include "engine/engine.h"
#include "engine/local_sequence.h"
#include "runtime/bench_machine.h"

namespace plumb {
namespace {

constexpr std::int64_t kDecodeSteps = 48;  // of one run
constexpr std::uint64_t kSeed = 1;

double clock_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The engine of a bench and what its runs share.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> open(const BenchOptions& options, std::int64_t positions) {
    if (options.tokens < 1 || options.batch < 1 || options.chunk < 0 || options.repeats < 1)
      return error("bench: --tokens, --batch and --repeats must be at least 1, --chunk not negative");
    auto model = load_model(options.model);
    if (!model) return tl::unexpected(model.error());
    if (positions > model->config.max_positions)
      return error("bench: {} positions; the model has {}", positions, model->config.max_positions);
    const auto layers = static_cast<int>(model->config.layers.size());
    if (const auto known = options.settings.check_layers(layers); !known) return tl::unexpected(known.error());
    const auto threads = bench_threads(options.threads);
    if (!threads) return tl::unexpected(threads.error());
    return std::make_unique<Bench>(std::make_shared<const Model>(std::move(*model)), *threads, options);
  }

  Bench(std::shared_ptr<const Model> model, int threads, const BenchOptions& options)
      : options_(options),
        engine_(std::move(model), std::make_shared<ThreadPool>(threads), options.backend, options.settings),
        logits_(static_cast<std::size_t>(options.batch * engine_.config().vocab_size)) {}

  const ModelConfig& config() const { return engine_.config(); }

  std::vector<std::int32_t> random_ids(std::int64_t count) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(config().vocab_size))));
    return ids;
  }

  std::unique_ptr<LocalSequence> new_sequence(std::int64_t tokens) {
    auto sequence = std::make_unique<LocalSequence>(engine_.layout());
    sequence->reserve(tokens);
    return sequence;
  }

  void forward(std::span<const BatchSequence> batch) {
    const auto rows = static_cast<std::int64_t>(batch.size());
    engine_.forward({batch, &options_.settings}, {logits_.data(), {rows, config().vocab_size}});
    // Part of what is timed, as it is of a server's pass.
    const auto used = std::span(logits_).first(static_cast<std::size_t>(rows * config().vocab_size));
    finite_ = finite_ && std::all_of(used.begin(), used.end(), [](float logit) { return std::isfinite(logit); });
  }

  void prefill(LocalSequence& sequence, std::span<const std::int32_t> ids) {
    const auto count = static_cast<std::int64_t>(ids.size()), chunk = options_.chunk == 0 ? count : options_.chunk;
    for (std::int64_t first = 0; first < count; first += chunk) {
      const std::int64_t tokens = std::min(chunk, count - first);
      const BatchSequence in{&sequence.state(),
                             ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tokens)), false,
                             nullptr};
      forward({&in, 1});
    }
  }

  // Runs body once, then options.repeats times with a clock.
  template <class Body>
  std::vector<BenchRun> time(Body&& body) {
    body();
    std::vector<BenchRun> runs;
    for (int i = 0; i < options_.repeats; ++i) {
      const double wall = clock_seconds(CLOCK_MONOTONIC), processor = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
      body();
      runs.push_back({clock_seconds(CLOCK_MONOTONIC) - wall, clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor});
    }
    return runs;
  }

  // The result of runs of `tokens` tokens each that cost `passes` in all. Errors: logits were not finite.
  Result<BenchResult> result(std::string_view what, std::int64_t tokens, std::vector<BenchRun> runs,
                             const std::vector<PassCost>& passes, int threads) const {
    if (!finite_) return error("the model gave logits that are not finite; its weights or config are damaged");
    double operations = 0, bytes = 0;
    for (const PassCost& pass : passes) operations += pass.operations, bytes += pass.weight_bytes;
    const BenchMachine machine =
        measure_machine(threads, static_cast<std::int64_t>(bytes / static_cast<double>(passes.size())));
    const double by_operations = operations / machine.operations_per_second,
                 by_bytes = bytes / machine.bytes_per_second;
    return BenchResult{.what = what,
                       .tokens = tokens,
                       .runs = std::move(runs),
                       .machine = machine,
                       .limit = static_cast<double>(tokens) / std::max(by_operations, by_bytes),
                       .limited_by = by_operations > by_bytes ? "operations" : "bytes"};
  }

 private:
  const BenchOptions options_;
  Engine engine_;
  std::vector<float> logits_;
  bool finite_ = true;  // all logits so far
  Rng rng_{kSeed};
};

}  // namespace

double BenchResult::best() const {
  double least = runs.front().seconds;
  for (const BenchRun& run : runs) least = std::min(least, run.seconds);
  return static_cast<double>(tokens) / least;
}

double BenchResult::median() const {
  std::vector<double> seconds;
  for (const BenchRun& run : runs) seconds.push_back(run.seconds);
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return static_cast<double>(tokens) / seconds[seconds.size() / 2];
}

double BenchResult::per_processor_second() const {
  double least = runs.front().processor_seconds;
  for (const BenchRun& run : runs) least = std::min(least, run.processor_seconds);
  return static_cast<double>(tokens) / least;
}

Result<int> bench_threads(int threads) {
  constexpr int kMostThreads = 256;
  if (threads < 0 || threads > kMostThreads) return error("{} threads: must be from 0 to {}", threads, kMostThreads);
  if (threads > 0) return threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

BenchMachine measure_machine(int threads, std::int64_t read_bytes) {
  const Isa isa = best_isa();
  return {.isa = isa == Isa::avx512 ? "avx512"
                 : isa == Isa::avx2 ? "avx2"
                                    : "baseline",
          .threads = threads,
          .operations_per_second = measure_multiply_adds(threads),
          .read_bytes = read_bytes,
          .bytes_per_second = measure_reads(threads, read_bytes)};
}

Result<BenchResult> bench_prefill(const BenchOptions& options) {
  const auto opened = Bench::open(options, options.tokens);
  if (!opened) return tl::unexpected(opened.error());
  Bench& bench = **opened;
  const std::int64_t chunk = options.chunk == 0 ? options.tokens : options.chunk;
  std::vector<PassCost> passes;
  for (std::int64_t first = 0; first < options.tokens; first += chunk)
    passes.push_back(
        pass_cost(bench.config(), {.sequences = 1, .rows = std::min(chunk, options.tokens - first), .context = first}));
  const std::vector<std::int32_t> ids = bench.random_ids(options.tokens);
  // Pages are there before a run, as a server's are.
  std::vector<std::unique_ptr<LocalSequence>> sequences;
  for (std::int64_t i = 0; i < options.batch * (options.repeats + 1); ++i)
    sequences.push_back(bench.new_sequence(options.tokens));
  std::size_t next = 0;
  auto runs = bench.time([&] {
    for (std::int64_t i = 0; i < options.batch; ++i) bench.prefill(*sequences[next++], ids);
  });
  std::vector<PassCost> all;
  for (std::int64_t i = 0; i < options.batch; ++i) all.insert(all.end(), passes.begin(), passes.end());
  return bench.result("prefill", options.tokens * options.batch, std::move(runs), all,
                      bench_threads(options.threads).value());
}

Result<BenchResult> bench_decode(const BenchOptions& options) {
  // Every run, the untimed one too, goes on where the last one stopped.
  const std::int64_t positions = options.tokens + (options.repeats + 1) * kDecodeSteps;
  const auto opened = Bench::open(options, positions);
  if (!opened) return tl::unexpected(opened.error());
  Bench& bench = **opened;
  std::vector<std::unique_ptr<LocalSequence>> sequences;
  for (std::int64_t i = 0; i < options.batch; ++i) {
    sequences.push_back(bench.new_sequence(positions));
    bench.prefill(*sequences.back(), bench.random_ids(options.tokens));
  }
  auto runs = bench.time([&] {
    for (std::int64_t step = 0; step < kDecodeSteps; ++step) {
      const std::vector<std::int32_t> ids = bench.random_ids(options.batch);
      std::vector<BatchSequence> batch;
      for (std::size_t i = 0; i < sequences.size(); ++i)
        batch.push_back({&sequences[i]->state(), std::span(ids).subspan(i, 1), false, nullptr});
      bench.forward(batch);
    }
  });
  std::vector<PassCost> passes;
  for (std::int64_t step = 0; step < kDecodeSteps; ++step)
    passes.push_back(
        pass_cost(bench.config(), {.sequences = options.batch, .rows = 1, .context = options.tokens + step}));
  return bench.result("decode", kDecodeSteps * options.batch, std::move(runs), passes,
                      bench_threads(options.threads).value());
}

}  // namespace plumb
