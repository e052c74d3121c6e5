#pragma once

#include <cstdint>
#include <memory>

#include "base/parallel.h"
#include "base/result.h"
#include "runtime/generator.h"
#include "switches/backend.h"
#include "weights/model.h"

namespace plumb {

/// What computes, and what memory is planned for. Zero means: derived from the model.
struct RuntimeOptions {
  Backend backend = Backend::cpu;
  Settings launch;                        // decides how weights and state are stored; every request agrees with it
  std::int64_t max_context_tokens = 0;    // of one request; 0: the config's max_position_embeddings
  std::int64_t chunk_tokens = 128;        // of prefill.chunked, at least 1
  int max_running = 16;                   // sequences in flight
  int max_waiting = 256;                  // beyond that: overloaded
  std::int64_t pool_tokens = 0;           // of all pages; 0: twice max_context_tokens
  std::int64_t prefix_bytes = 256 << 20;  // tails of stored prefixes
  std::int64_t score_bytes = 512 << 20;   // logits of one scored prompt (prompt_logprobs)
};

/// Starts the generator: one thread that runs a Scheduler. All memory for state is planned here; a request that was
/// accepted is never ended for want of it, at worst it waits while older ones run.
/// Errors: options that contradict each other or the model.
Result<std::unique_ptr<Generator>> make_generator(std::shared_ptr<const Model> model,
                                                  std::shared_ptr<Executor> executor, const RuntimeOptions& options);

}  // namespace plumb
