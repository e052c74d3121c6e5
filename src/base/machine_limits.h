#pragma once

#include <cstdint>

namespace plumb {

/// What this machine can do at most, measured here and now with `threads` threads: other work on the machine lowers it,
/// as it lowers what is compared with it.
///
/// f32 operations a second of fused multiply-adds (two each) in registers, on the instruction set of best_isa(): the
/// best of some 20 ms runs.
double measure_multiply_adds(int threads);

/// Bytes a second of reads from a working set of `bytes` in all, each thread its own part, again and again: so from the
/// cache or memory that holds that much. The best of some 20 ms runs. At least one cache line a thread is read.
double measure_reads(int threads, std::int64_t bytes);

}  // namespace plumb
