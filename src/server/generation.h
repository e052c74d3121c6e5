#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "model/encoding.h"
#include "runtime/generator.h"
#include "server/api.h"
#include "server/exchange.h"
#include "server/metrics.h"
#include "server/token_texts.h"

namespace plumb::server {

class Generation;

/// The generations that are running, so that a stop can wait for them or end them. Thread-safe.
class RunningGenerations {
 public:
  void add(const std::shared_ptr<Generation>& generation);
  void remove(const std::shared_ptr<Generation>& generation);
  /// Waits until none runs; false when the time is over first.
  bool wait_until_none(std::chrono::milliseconds timeout);
  /// Cancels all: their clients get a 503 or an error event.
  void cancel_all();
  /// Cuts all off from the generator: nothing it says reaches them any more.
  void detach_all();

 private:
  std::vector<std::shared_ptr<Generation>> all() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<std::shared_ptr<Generation>> running_;
};

/// What generations need; it outlives them.
struct GenerationContext {
  Generator& generator;
  const Encoding& encoding;
  const TokenTexts& texts;
  Metrics& metrics;
  RunningGenerations& running;
  std::string model;
  bool
      chat_leading_space;  // the chat form puts one space between a role marker and the text; replies are shown without
  std::chrono::milliseconds keep_alive;  // 0: no comments while a stream waits for its first token
  std::chrono::milliseconds health_timeout;
};

/// A request for tokens, checked and tokenised.
struct GenerationPlan {
  enum class Form { completion, chat, health } form;
  GenerationOptions options;                       // max_tokens is set
  std::vector<std::vector<std::int32_t>> prompts;  // none empty; with max_tokens they fit the context
  bool echo = false;
  HeaderList headers;
  std::chrono::steady_clock::time_point arrival;
};

/// Submits the plan's sequences (prompts times n) and answers on the exchange as tokens come. Call on its strand.
void start_generation(const GenerationContext& context, GenerationPlan plan, std::shared_ptr<Exchange> exchange);

/// The answer to a request that the generator did not accept.
ApiError rejection_error(const Rejection& rejection);
/// An error as a reply; overload says when to come back.
HttpReply error_reply(const ApiError& error);

}  // namespace plumb::server
