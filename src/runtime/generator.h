#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "switches/switches.h"

namespace plumb {

/// How the next token is drawn. temperature 0: the largest logit, the lowest id among equals. Otherwise the draw is a
/// function of (seed, position), so that it does not depend on the batch. Bias and penalties change the logits that the
/// draw sees (adjust_logits has the formula); log-probabilities stay those of the raw logits.
struct Sampling {
  double temperature = 1.0;
  double top_p = 1.0;
  int top_k = 0;  // 0: all
  double min_p = 0.0;
  double presence_penalty = 0.0;    // -2 to 2; subtracted once from what was generated before
  double frequency_penalty = 0.0;   // -2 to 2; subtracted once for each time it was generated
  double repetition_penalty = 1.0;  // above 0; divides (negative logits: multiplies) prompt and generated tokens
  std::map<std::int32_t, float> logit_bias;  // id -> -100 to 100, added
  std::uint64_t seed = 0;
};

struct GenerateRequest {
  std::vector<std::int32_t> prompt;  // at least one id
  std::int64_t max_tokens = 16;      // 0: only scores the prompt
  Sampling sampling;
  std::vector<std::int32_t> stop_ids;  // generation ends after one of these is drawn; it is still reported
  int top_logprobs = -1;               // -1: no log-probabilities; k: those of the k largest (and of the token itself)
  bool prompt_logprobs = false;        // also score prompt positions 1.. (bypasses the prefix cache)
  Settings settings;
};

/// A token with its log-probability: log-softmax of the raw logits in f64, rounded to f32. `top` is sorted: larger
/// first, then lower id.
struct TokenScore {
  std::int32_t id = 0;
  float logprob = 0;
  std::vector<std::pair<std::int32_t, float>> top;

  bool operator==(const TokenScore&) const = default;
};

/// `failed`: the model gave logits that are not finite; the reply ends there.
enum class Finish { stop, length, cancelled, failed };

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, not computed because a stored prefix had them
  std::int64_t completion_tokens = 0;
};

/// Receives what a request produces, on the generator's thread, in order: prompt scores (if asked) once, tokens,
/// finish. Must not block. `on_finish` is the last call.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void on_prompt_scores(std::vector<TokenScore> scores) = 0;  // entry i scores prompt[i + 1]
  virtual void on_token(TokenScore token) = 0;
  virtual void on_finish(Finish reason, Usage usage) = 0;
};

/// Why a request was not accepted.
struct Rejection {
  enum class Kind { too_long, overloaded, invalid, stopping } kind;
  std::string message;
};

/// Gauges are of this moment, counters since the start.
struct GeneratorStats {
  std::int64_t running = 0;
  std::int64_t waiting = 0;    // not yet started
  std::int64_t preempted = 0;  // started, then moved out for others; they resume before anyone waiting starts
  std::int64_t pages_used = 0;
  std::int64_t pages_total = 0;
  std::int64_t window_pages_used = 0;
  std::int64_t pages_cached = 0;    // of those used: they hold stored prefixes (running sequences may share them)
  std::int64_t prefix_nodes = 0;    // stored prefixes
  std::int64_t prefix_bytes = 0;    // their tails and tokens
  std::int64_t longest_wait = 0;    // most passes between two of a running sequence, ever; at most max_running
  std::uint64_t prompt_tokens = 0;  // of finished requests, as the next three
  std::uint64_t generated_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t finished = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t failed = 0;
  std::uint64_t rejected = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t prefix_query_tokens = 0;  // positions that a stored prefix could have covered, at starts and resumes
  std::uint64_t prefix_hit_tokens = 0;    // those that one did cover
  std::uint64_t recomputed_tokens = 0;    // computed again after a preemption
  std::uint64_t prefix_evictions = 0;
  std::uint64_t digest_mismatches = 0;
  std::uint64_t passes = 0;
  std::uint64_t pass_tokens = 0;   // computed in all passes
  std::uint64_t plans_built = 0;   // of passes
  std::uint64_t plans_reused = 0;  // decode.plan_reuse kept the last one
};

/// Turns prompts into tokens; all members may be called from any thread.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual tl::expected<std::uint64_t, Rejection> submit(GenerateRequest request, std::shared_ptr<TokenSink> sink) = 0;
  /// Ends a request; on_finish(cancelled) follows unless it had already finished. Unknown ids are ignored.
  virtual void cancel(std::uint64_t id) = 0;
  virtual GeneratorStats stats() const = 0;
  /// The longest prompt plus completion a request may have.
  virtual std::int64_t max_context_tokens() const = 0;
};

}  // namespace plumb
