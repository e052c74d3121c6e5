#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tl/expected.hpp>

#include "model/chat.h"
#include "model/reply_parser.h"
#include "runtime/generator.h"
#include "switches/switches.h"

namespace plumb::server {

/// A refusal as OpenAI's clients expect it: HTTP status and the four members of its nested error object.
struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;  // empty: null
  std::string code;   // never empty
};

/// `{"error":{"message":…,"type":…,"param":…,"code":…}}`.
std::string error_body(const ApiError& error);

/// `text` as a JSON string with its quotes; parts that are not UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

/// Bounds of a request's fields, and what it is checked against.
struct ApiLimits {
  std::int64_t vocab_size = 0;
  std::int64_t max_logprobs = 20;  // largest k; -1: up to the vocabulary
  std::size_t max_prompts = 256;
  std::size_t max_choices = 256;  // prompts times n
  std::size_t max_messages = 4096;
  std::size_t max_stops = 16;
  std::size_t max_stop_bytes = 1024;  // of one stop string
  std::size_t max_stop_token_ids = 64;
  std::size_t max_biases = 1024;
  std::size_t max_tools = 1024;
  std::string part_separator;  // between the text parts of a message
  Settings settings;           // of the launch; a request may change those of request scope
  int layers = kMaxLayers;
};

/// What completions and chat have in common.
struct GenerationOptions {
  std::string model;                       // empty: not given
  std::optional<std::int64_t> max_tokens;  // chat: none means the rest of the context
  Sampling sampling;
  bool seed_given = false;
  std::vector<std::string> stop;
  std::vector<std::int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool skip_special_tokens = false;  // true: no special token's text is shown; else only the end token's is left out
  int logprobs = -1;                 // -1: none; k: the k largest beside the token's own
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // usage so far on every event
  bool return_token_ids = false;
  Settings settings;
  std::vector<std::string> ignored;  // fields that are not known, in order; listed in x-plumb-ignored
};

using Prompt = std::variant<std::string, std::vector<std::int32_t>>;

struct CompletionRequest {
  GenerationOptions options;
  std::vector<Prompt> prompts;
  std::string suffix;  // not empty: the answer stands between a prompt and this
  bool echo = false;
  bool add_special_tokens = true;  // BOS before a text that has none, where the model expects one
};

struct ChatRequest {
  GenerationOptions options;
  Conversation conversation;
  ReplyOptions reply;
  bool include_reasoning = true;
  std::string thinking_field;  // the one that asks for thinking or its effort; empty: none does
};

/// Exactly one of the two is given.
struct TokenizeRequest {
  std::optional<std::string> prompt;
  bool add_special_tokens = true;
  std::optional<Conversation> conversation;
  std::string thinking_field;  // as a chat's
  Settings settings;
};

struct DetokenizeRequest {
  std::vector<std::int32_t> tokens;
  bool skip_special_tokens = false;
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

/// Reads a request body. Refused: malformed JSON (also duplicate keys, nesting deeper than kMaxDepth, more than
/// kMaxValues values, numbers out of range), a wrong type or range, and fields whose meaning this version cannot
/// honour.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const ApiLimits& limits);
ApiResult<ChatRequest> parse_chat_request(std::string_view body, const ApiLimits& limits);
ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const ApiLimits& limits);
ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const ApiLimits& limits);

inline constexpr int kMaxDepth = 32;
inline constexpr std::int64_t kMaxValues = 4 << 20;

/// Sets one switch for one request. Errors: unknown name, a value that does not parse, a switch decided at launch.
ApiResult<void> set_request_switch(Settings& settings, std::string_view name, std::string_view value,
                                   std::span<const Switch> table = kSwitches);

}  // namespace plumb::server
