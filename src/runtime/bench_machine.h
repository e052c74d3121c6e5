#pragma once

#include "runtime/bench.h"

namespace plumb {

/// The threads a bench runs on. Errors: more than 256, fewer than 0.
Result<int> bench_threads(int threads);

/// The limits of `threads` threads; bytes are those of a working set of `read_bytes`.
BenchMachine measure_machine(int threads, std::int64_t read_bytes);

}  // namespace plumb
