#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/encoding.h"
#include "runtime/generator.h"
#include "server/api.h"
#include "server/exchange.h"
#include "server/metrics.h"
#include "server/running_generations.h"
#include "server/token_texts.h"

namespace plumb::server {

/// What generations need; it outlives them.
struct GenerationContext {
  Generator& generator;
  const Encoding& encoding;
  const TokenTexts& texts;
  Metrics& metrics;
  RunningGenerations& running;
  std::string model;
  std::chrono::milliseconds keep_alive;  // 0: no comments while a stream waits for its first token
  std::chrono::milliseconds health_timeout;
};

/// How the answers of a chat are read.
struct ChatReading {
  std::vector<std::unique_ptr<ReplyParser>> parsers;  // one a choice
  std::string answer_start;                           // the end of the prompt that is part of each answer
  bool include_reasoning = true;
  std::string effort;                 // of the thinking; empty: none
  std::vector<std::string> warnings;  // of the prompt's encoding
};

/// A request for tokens, checked and tokenised.
struct GenerationPlan {
  enum class Form { completion, chat, health } form;
  GenerationOptions options;                       // max_tokens is set
  std::vector<std::vector<std::int32_t>> prompts;  // none empty; with max_tokens they fit the context
  bool echo = false;
  ChatReading chat;  // of Form::chat
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
