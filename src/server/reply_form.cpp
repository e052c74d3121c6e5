#include "server/reply_form.h"

#include <fmt/ranges.h>

#include "server/api.h"

namespace plumb::server {
namespace {

std::string usage_json(const Usage& usage) {
  return fmt::format(
      R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}},)"
      R"("prompt_cache_hit_tokens":{},"prompt_cache_miss_tokens":{}}})",
      usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens,
      usage.cached_tokens, usage.prompt_tokens - usage.cached_tokens);
}

std::string object(const ReplyHead& head, const char* kind, const std::string& choices, const std::string& tail = "") {
  return fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":{},"choices":[{}]{}}})", head.id, kind,
                     head.created, json_quote(head.model), choices, tail);
}

const char* chunk_kind(const ReplyHead& head) { return head.chat ? "chat.completion.chunk" : "text_completion"; }

// `body` is the member that holds the text: "text", "delta" or "message".
std::string choice(const ChoicePart& part, const std::string& body) {
  std::string out = fmt::format(R"({{"index":{},{},"logprobs":{},"finish_reason":{},"stop_reason":{})", part.index,
                                body, part.logprobs,
                                part.finish_reason.empty() ? "null" : json_quote(part.finish_reason), part.stop_reason);
  if (part.token_ids != nullptr) out += fmt::format(R"(,"token_ids":[{}])", fmt::join(*part.token_ids, ","));
  if (part.prompt_token_ids != nullptr)
    out += fmt::format(R"(,"prompt_token_ids":[{}])", fmt::join(*part.prompt_token_ids, ","));
  return out + '}';
}

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }

}  // namespace

std::string complete_reply(const ReplyHead& head, const std::vector<ChoicePart>& choices, const Usage& usage) {
  std::string list;
  for (const ChoicePart& part : choices) {
    if (!list.empty()) list += ',';
    const std::string text = json_quote(part.text);
    list += choice(
        part, head.chat ? fmt::format(R"("message":{{"role":"assistant","content":{},"reasoning_content":null}})", text)
                        : fmt::format(R"("text":{})", text));
  }
  return object(head, head.chat ? "chat.completion" : "text_completion", list, R"(,"usage":)" + usage_json(usage));
}

std::string role_event(const ReplyHead& head, int index) {
  ChoicePart part;
  part.index = index;
  return event(object(head, chunk_kind(head), choice(part, R"("delta":{"role":"assistant","content":""})")));
}

std::string text_event(const ReplyHead& head, const ChoicePart& part) {
  const std::string text = json_quote(part.text);
  return event(object(
      head, chunk_kind(head),
      choice(part, head.chat ? fmt::format(R"("delta":{{"content":{}}})", text) : fmt::format(R"("text":{})", text))));
}

std::string finish_event(const ReplyHead& head, const ChoicePart& part) {
  return event(object(head, chunk_kind(head), choice(part, head.chat ? R"("delta":{})" : R"("text":"")")));
}

std::string usage_event(const ReplyHead& head, const Usage& usage) {
  return event(object(head, chunk_kind(head), "", R"(,"usage":)" + usage_json(usage)));
}

std::string error_event(const std::string& error_body) { return event(error_body); }

}  // namespace plumb::server
