#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/generator.h"

namespace plumb::server {

/// What every object of one answer says about itself.
struct ReplyHead {
  bool chat = false;  // else completions
  std::string id;     // "chatcmpl-…", "cmpl-…"
  std::string model;
  std::int64_t created = 0;  // seconds since 1970
};

/// One choice: complete, or what a chunk adds to it.
struct ChoicePart {
  int index = 0;
  std::string text;
  std::string logprobs = "null";                         // JSON
  std::string finish_reason;                             // empty: null
  std::string stop_reason = "null";                      // JSON: the stop string or token id that ended it
  const std::vector<std::int32_t>* token_ids = nullptr;  // shown when asked for
  const std::vector<std::int32_t>* prompt_token_ids = nullptr;
};

/// The whole answer as one JSON object.
std::string complete_reply(const ReplyHead& head, const std::vector<ChoicePart>& choices, const Usage& usage);

/// Events of a stream, each "data: …\n\n".
std::string role_event(const ReplyHead& head, int index);  // chat only
std::string text_event(const ReplyHead& head, const ChoicePart& part);
std::string finish_event(const ReplyHead& head, const ChoicePart& part);
std::string usage_event(const ReplyHead& head, const Usage& usage);
std::string error_event(const std::string& error_body);
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";
inline constexpr const char* kKeepAliveComment = ": keep-alive\n\n";

}  // namespace plumb::server
