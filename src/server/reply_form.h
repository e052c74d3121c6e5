#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/chat.h"
#include "runtime/generator.h"
#include "server/reply_reader.h"

namespace plumb::server {

/// What every object of one answer says about itself.
struct ReplyHead {
  bool chat = false;  // else completions
  std::string id;     // "chatcmpl-…", "cmpl-…"
  std::string model;
  std::int64_t created = 0;           // seconds since 1970
  std::string effort;                 // of the thinking; empty: none
  std::vector<std::string> warnings;  // of the prompt's encoding
  bool usage_at_end = false;          // a stream's: events before the last say "usage": null
};

/// One choice: complete, or what a chunk adds to it.
struct ChoicePart {
  int index = 0;
  std::string text;
  std::string reasoning;                                 // chat
  std::vector<ToolCall> calls;                           // chat
  std::string logprobs = "null";                         // JSON
  std::string finish_reason;                             // empty: null
  std::string stop_reason = "null";                      // JSON: the stop string or token id that ended it
  std::vector<std::string> warnings;                     // what was irregular, words of a fixed set
  const std::vector<std::int32_t>* token_ids = nullptr;  // shown when asked for
  const std::vector<std::int32_t>* prompt_token_ids = nullptr;
};

/// Usage of a whole answer.
struct ReplyUsage : Usage {
  std::int64_t reasoning_tokens = 0;  // of the completion
};

/// The whole answer as one JSON object.
std::string complete_reply(const ReplyHead& head, const std::vector<ChoicePart>& choices, const ReplyUsage& usage);

/// Events of a stream, each "data: …\n\n". `usage` so far is shown where it is given.
std::string role_event(const ReplyHead& head, int index, const ReplyUsage* usage);  // chat only
/// What one delta adds; `part` has the rest of the choice (logprobs, ids), `call_id` is that of a call that begins.
std::string delta_event(const ReplyHead& head, const ChoicePart& part, const ReplyDelta& delta,
                        const std::string& call_id, const ReplyUsage* usage);
std::string finish_event(const ReplyHead& head, const ChoicePart& part, const ReplyUsage* usage);
std::string usage_event(const ReplyHead& head, const ReplyUsage& usage);
std::string error_event(const std::string& error_body);
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";
inline constexpr const char* kKeepAliveComment = ": keep-alive\n\n";

}  // namespace plumb::server
