#include "model/v4_rules.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "model/python_json.h"
#include "model/tool_results.h"

namespace plumb {
namespace {

constexpr std::string_view kParagraph = "\n\n";
// A value, a key or a name with this text would end early: the form has no escapes.
constexpr std::string_view kEndOfValue = "</｜DSML｜parameter>";
constexpr std::string_view kEndOfName = "\">", kEndOfKey = "\" string=";

void warn(V4Conversation& out, const char* kind) {
  if (std::find(out.warnings.begin(), out.warnings.end(), kind) == out.warnings.end()) out.warnings.emplace_back(kind);
}

bool is_question(const std::string& role) { return role == "user" || role == "developer" || role == "tool"; }

void join(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += kParagraph;
  text += more;
}

void append_all(auto& list, auto& more) {
  list.insert(list.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// The reference deletes a developer message before the last question; at the start it is meant as a system message.
void lift_developer(std::vector<ChatMessage>& messages) {
  const auto stays = [](const ChatMessage& m) { return m.role != "system" && m.role != "developer"; };
  auto end = std::find_if(messages.begin(), messages.end(), stays);
  // With nothing behind it, it is the question.
  if (end == messages.end() && end[-1].role == "developer") --end;
  if (std::none_of(messages.begin(), end, [](const ChatMessage& m) { return m.role == "developer"; })) return;
  ChatMessage& first = messages.front();
  first.role = "system";
  for (auto it = messages.begin() + 1; it != end; ++it) {
    join(first.content, it->content);
    append_all(first.tools, it->tools);
    if (first.response_format.empty()) first.response_format = std::move(it->response_format);
  }
  messages.erase(messages.begin() + 1, end);
}

void declare(std::vector<ChatMessage>& messages, std::vector<ChatTool>& tools) {
  if (tools.empty()) return;
  if (messages.empty() || messages.front().role != "system") {
    ChatMessage system;
    system.role = "system";
    messages.insert(messages.begin(), std::move(system));
  }
  append_all(messages.front().tools, tools);
}

Result<void> join_assistants(std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> out;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    ChatMessage& message = messages[i];
    if (out.empty() || message.role != "assistant" || out.back().role != "assistant") {
      out.push_back(std::move(message));
      continue;
    }
    ChatMessage& before = out.back();
    const bool wrote = !before.content.empty() || !before.tool_calls.empty();
    if (message.reasoning_content.value_or("") != "" && wrote)
      return error(
          "messages[{}]: reasoning_content behind the content of the assistant message before it has no place "
          "in this model's form; send one assistant message a turn",
          i);
    if (!message.content.empty() && !before.tool_calls.empty())
      return error(
          "messages[{}]: content behind the tool calls of the assistant message before it has no place in "
          "this model's form; send one assistant message a turn",
          i);
    if (message.reasoning_content)
      before.reasoning_content = before.reasoning_content.value_or("") + *message.reasoning_content;
    before.content += message.content;
    append_all(before.tool_calls, message.tool_calls);
  }
  messages = std::move(out);
  return {};
}

Result<void> check_calls(const ChatMessage& message, std::size_t index, V4Conversation& out) {
  const auto refuse = [&](const std::string& what, std::string_view text) {
    return error("messages[{}].tool_calls: {} contains '{}', which ends it in this model's form: there is no escape",
                 index, what, text);
  };
  for (const ToolCall& call : message.tool_calls) {
    if (call.name.find(kEndOfName) != call.name.npos) return refuse("the name of a function", kEndOfName);
    const auto members = python_json_members(call.arguments);
    if (!members) {
      warn(out, "arguments_not_json");
      if (call.arguments.find(kEndOfValue) != call.arguments.npos) return refuse("an argument", kEndOfValue);
      continue;
    }
    for (const JsonMember& member : *members) {
      if (member.value.find(kEndOfValue) != member.value.npos) return refuse("an argument", kEndOfValue);
      for (const std::string_view end : {kEndOfName, kEndOfKey, kEndOfValue})
        if (member.key.find(end) != member.key.npos) return refuse("the key of an argument", end);
    }
  }
  return {};
}

Result<void> check_messages(V4Conversation& out) {
  const std::vector<ChatMessage>& messages = out.messages;
  for (const std::string& kind : tool_result_warnings(messages)) warn(out, kind.c_str());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == "latest_reminder" && i > 0 && is_question(messages[i - 1].role))
      return error("messages[{}]: a latest_reminder stands before the user message it belongs to, not behind it", i);
    if (const auto good = check_calls(message, i, out); !good) return good;
  }
  return {};
}

Result<void> check_end(const Conversation& conversation, const std::vector<ChatMessage>& messages) {
  const ChatMessage& last = messages.back();
  const bool assistant = last.role == "assistant";
  if (conversation.continuation == Continuation::none) {
    if (assistant)
      return error(
          "the last message is an assistant's: set continue_final_message (or prefix on the message) to have "
          "it continued, or send a user message");
    if (!is_question(last.role)) return error("the last message is of role {}: there is nothing to answer", last.role);
    return {};
  }
  if (!assistant) return error("to be continued, the last message must be an assistant's");
  if (!last.tool_calls.empty()) return error("an assistant message with tool calls cannot be continued");
  if (conversation.continuation == Continuation::reasoning && !last.content.empty())
    return error("to continue its reasoning, the last message must have reasoning_content and no content");
  if (!conversation.task.empty()) return error("a task asks for an answer of its own: there is nothing to continue");
  return {};
}

Result<void> force_call(const Conversation& conversation, V4Conversation& out) {
  const bool named = conversation.tool_choice == ToolChoice::named;
  if (!named && conversation.tool_choice != ToolChoice::required) return {};
  if (out.options.thinking)
    return error(
        "tool_choice \"required\" or a function's name start the call at once, but with thinking the model "
        "thinks first: switch thinking off, or leave tool_choice at \"auto\"");
  if (conversation.continuation != Continuation::none || !conversation.task.empty())
    return error("tool_choice \"required\" or a function's name cannot be had together with a continuation or a task");
  append_v4_marked("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"", out.forced);
  if (named) out.forced.back().text += conversation.tool_name + "\">\n";
  return {};
}

// What the arranged turns show and the client may not expect.
Result<void> look_at_turns(const Conversation& conversation, V4Conversation& out) {
  const auto turns = arrange_v4(out.messages, out.options);
  if (!turns) return tl::unexpected(turns.error());
  const auto count = [](const auto& list, auto is) { return std::count_if(list.begin(), list.end(), is); };
  if (count(out.messages, [](const ChatMessage& m) { return m.role == "developer"; }) !=
      count(*turns, [](const V4Turn& t) { return t.kind == V4Turn::Kind::developer; }))
    warn(out, "developer_message_dropped");
  for (const V4Turn& turn : *turns) {
    const bool lacks = turn.thinking_part && !turn.message->tool_calls.empty() && !turn.message->reasoning_content;
    if (!lacks || conversation.missing_reasoning == MissingReasoning::allow) continue;
    if (conversation.missing_reasoning == MissingReasoning::reject)
      return error("messages[{}]: the reasoning_content that led to its tool calls must be passed back",
                   turn.message - out.messages.data());
    warn(out, "missing_reasoning");
  }
  const V4Turn& last = turns->back();
  out.opens_reasoning = last.open_reasoning || (last.asks_assistant && last.opens_thinking && last.task.empty());
  return {};
}

}  // namespace

Result<V4Conversation> prepare_v4(Conversation conversation, V4Profile profile) {
  if (conversation.messages.empty()) return error("messages: at least one is needed");
  V4Conversation out;
  const bool no_effort = conversation.effort == "none";
  const auto effort = v4_effort(no_effort ? "" : conversation.effort);
  if (!effort) return tl::unexpected(effort.error());
  const bool silent = conversation.tool_choice == ToolChoice::none && !conversation.tools.empty();
  out.options = {.profile = profile,
                 .thinking = conversation.thinking.value_or(!no_effort),
                 .drop_thinking = conversation.drop_thinking && !silent,
                 .effort = *effort,
                 .task = conversation.task,
                 .continuation = conversation.continuation};
  if (!conversation.task.empty() && v4_task_token(conversation.task).empty())
    return error("task '{}' is unknown; there are action, query, authority, domain, title and read_url",
                 conversation.task);
  if (const auto joined = join_assistants(conversation.messages); !joined) return tl::unexpected(joined.error());
  out.messages = std::move(conversation.messages);
  if (conversation.developer_is_system) lift_developer(out.messages);
  if (!silent) declare(out.messages, conversation.tools);
  if (const auto good = look_at_turns(conversation, out); !good) return tl::unexpected(good.error());
  if (const auto good = check_messages(out); !good) return tl::unexpected(good.error());
  if (const auto good = check_end(conversation, out.messages); !good) return tl::unexpected(good.error());
  if (const auto good = force_call(conversation, out); !good) return tl::unexpected(good.error());
  return out;
}

}  // namespace plumb
