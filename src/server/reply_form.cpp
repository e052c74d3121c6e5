#include "server/reply_form.h"

#include <fmt/ranges.h>

#include "server/api.h"

namespace plumb::server {
namespace {

std::string usage_json(const ReplyUsage& usage) {
  return fmt::format(
      R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}},)"
      R"("completion_tokens_details":{{"reasoning_tokens":{}}},"reasoning_tokens":{},)"
      R"("prompt_cache_hit_tokens":{},"prompt_cache_miss_tokens":{}}})",
      usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens,
      usage.reasoning_tokens, usage.reasoning_tokens, usage.cached_tokens, usage.prompt_tokens - usage.cached_tokens);
}

std::string object(const ReplyHead& head, const char* kind, const std::string& choices, const std::string& tail = "") {
  return fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":{},"choices":[{}]{}}})", head.id, kind,
                     head.created, json_quote(head.model), choices, tail);
}

const char* chunk_kind(const ReplyHead& head) { return head.chat ? "chat.completion.chunk" : "text_completion"; }

std::string strings(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& text : list) (out += out.empty() ? "" : ",") += json_quote(text);
  return '[' + out + ']';
}

// `body` is the member that holds the text: "text", "delta" or "message".
std::string choice(const ChoicePart& part, const std::string& body) {
  std::string out = fmt::format(R"({{"index":{},{},"logprobs":{},"finish_reason":{},"stop_reason":{})", part.index,
                                body, part.logprobs,
                                part.finish_reason.empty() ? "null" : json_quote(part.finish_reason), part.stop_reason);
  if (part.token_ids != nullptr) out += fmt::format(R"(,"token_ids":[{}])", fmt::join(*part.token_ids, ","));
  if (part.prompt_token_ids != nullptr)
    out += fmt::format(R"(,"prompt_token_ids":[{}])", fmt::join(*part.prompt_token_ids, ","));
  if (!part.warnings.empty()) out += R"(,"plumb":{"warnings":)" + strings(part.warnings) + '}';
  return out + '}';
}

// What we say about the request beside OpenAI's members; nothing when there is nothing to say.
std::string remarks(const ReplyHead& head) {
  if (head.effort.empty() && head.warnings.empty()) return {};
  return fmt::format(R"(,"plumb":{{"effort":{},"warnings":{}}})",
                     head.effort.empty() ? "null" : json_quote(head.effort), strings(head.warnings));
}

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }

std::string usage_tail(const ReplyUsage& usage) { return R"(,"usage":)" + usage_json(usage); }

// Of an event before the last.
std::string usage_tail(const ReplyHead& head, const ReplyUsage* usage) {
  if (usage != nullptr) return usage_tail(*usage);
  return head.usage_at_end ? R"(,"usage":null)" : std::string();
}

std::string call_json(const ToolCall& call) {
  return fmt::format(R"({{"id":"{}","type":"function","function":{{"name":{},"arguments":{}}}}})", call.id,
                     json_quote(call.name), json_quote(call.arguments));
}

std::string message_json(const ChoicePart& part) {
  std::string out = fmt::format(R"("message":{{"role":"assistant","content":{},"reasoning_content":{})",
                                json_quote(part.text), part.reasoning.empty() ? "null" : json_quote(part.reasoning));
  std::string calls;
  for (const ToolCall& call : part.calls) (calls += calls.empty() ? "" : ",") += call_json(call);
  if (!calls.empty()) out += R"(,"tool_calls":[)" + calls + ']';
  return out + '}';
}

std::string chat_delta(const ReplyDelta& delta, const std::string& call_id) {
  const std::string text = json_quote(delta.text);
  switch (delta.kind) {
    case ReplyDelta::Kind::reasoning:
      return R"({"reasoning_content":)" + text + '}';
    case ReplyDelta::Kind::call:
      return fmt::format(
          R"({{"tool_calls":[{{"index":{},"id":"{}","type":"function","function":{{"name":{},"arguments":""}}}}]}})",
          delta.call, call_id, text);
    case ReplyDelta::Kind::arguments:
      return fmt::format(R"({{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})", delta.call, text);
    default:
      return R"({"content":)" + text + '}';
  }
}

}  // namespace

std::string complete_reply(const ReplyHead& head, const std::vector<ChoicePart>& choices, const ReplyUsage& usage) {
  std::string list;
  for (const ChoicePart& part : choices)
    (list += list.empty() ? "" : ",") +=
        choice(part, head.chat ? message_json(part) : R"("text":)" + json_quote(part.text));
  return object(head, head.chat ? "chat.completion" : "text_completion", list, usage_tail(usage) + remarks(head));
}

std::string role_event(const ReplyHead& head, int index, const ReplyUsage* usage) {
  ChoicePart part;
  part.index = index;
  return event(object(head, chunk_kind(head), choice(part, R"("delta":{"role":"assistant","content":""})"),
                      usage_tail(head, usage) + remarks(head)));
}

std::string delta_event(const ReplyHead& head, const ChoicePart& part, const ReplyDelta& delta,
                        const std::string& call_id, const ReplyUsage* usage) {
  const std::string body =
      head.chat ? R"("delta":)" + chat_delta(delta, call_id) : R"("text":)" + json_quote(delta.text);
  return event(object(head, chunk_kind(head), choice(part, body), usage_tail(head, usage)));
}

std::string finish_event(const ReplyHead& head, const ChoicePart& part, const ReplyUsage* usage) {
  return event(object(head, chunk_kind(head), choice(part, head.chat ? R"("delta":{})" : R"("text":"")"),
                      usage_tail(head, usage)));
}

std::string usage_event(const ReplyHead& head, const ReplyUsage& usage) {
  return event(object(head, chunk_kind(head), "", usage_tail(usage)));
}

std::string error_event(const std::string& error_body) { return event(error_body); }

}  // namespace plumb::server
