#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "switches/backend.h"
#include "switches/switches.h"

namespace plumb {

/// What to measure on a checkpoint, in this process and without a server.
struct BenchOptions {
  std::filesystem::path model;
  Backend backend = Backend::cpu;
  int threads = 0;             // 0: as many as there are cores
  std::int64_t tokens = 2048;  // prefill: of the prompt; decode: already there when decoding starts
  std::int64_t batch = 1;      // sequences computed together
  std::int64_t chunk = 128;    // prefill: prompt tokens of one pass, as a server has it; 0: all of them
  int repeats = 5;             // runs that are timed, after one that is not
  Settings settings;           // every switch off unless set
};

/// What this machine can do, measured in the same process.
struct BenchMachine {
  std::string isa;
  int threads;
  double operations_per_second;  // f32 multiply-adds in registers
  std::int64_t read_bytes;       // the working set of the next number: what one pass of the bench reads
  double bytes_per_second;
};

struct BenchRun {
  double seconds;            // of the clock
  double processor_seconds;  // of this process: less than threads * seconds when the machine had other work
};

/// Tokens a second of a forward pass, and the most that the machine's limits allow.
struct BenchResult {
  std::string_view what;  // "prefill" or "decode"
  std::int64_t tokens;    // of one run
  std::vector<BenchRun> runs;
  BenchMachine machine;
  double limit;                 // tokens a second
  std::string_view limited_by;  // "operations" or "bytes"

  double best() const;    // tokens a second of the fastest run
  double median() const;  // and of the middle one
  /// Tokens a processor second of the fastest run: hardly moved by what else the machine does.
  double per_processor_second() const;
};

/// Prefill of `batch` prompts one after another, `chunk` tokens a pass. Token ids are drawn from a fixed seed.
/// Errors: those of load_model, and sizes the model does not have.
Result<BenchResult> bench_prefill(const BenchOptions& options);

/// Decoding one token for each of `batch` sequences, again and again.
Result<BenchResult> bench_decode(const BenchOptions& options);

/// One op on one thread, on the weights and sizes of the checkpoint.
struct OpResult {
  std::string name;  // op and shape
  double seconds;    // of one call, the fastest run
  double operations;
  double bytes;          // read and written at least once
  double limit_seconds;  // the larger of operations and bytes over what the machine can do
};
struct OpsResult {
  std::int64_t rows;
  BenchMachine machine;  // bytes_per_second: of a working set that the second-level cache holds
  std::vector<OpResult> ops;
};

/// Every op that matters, with `batch` rows. Attention and the indexer see `tokens` positions. `chunk` is not used.
Result<OpsResult> bench_ops(const BenchOptions& options);

}  // namespace plumb
