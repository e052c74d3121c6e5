#include "model/v4_chat.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "model/python_json.h"
#include "model/v4_texts.h"

namespace plumb {
namespace {

using Kind = V4Turn::Kind;

struct Task {
  std::string_view name, token;
};
constexpr std::array kTasks{Task{"action", "<｜action｜>"},       Task{"query", "<｜query｜>"},
                            Task{"authority", "<｜authority｜>"}, Task{"domain", "<｜domain｜>"},
                            Task{"title", "<｜title｜>"},         Task{"read_url", "<｜read_url｜>"}};

constexpr std::string_view kBlockSeparator = "\n\n";

void append_text(std::string_view text, std::vector<TextPiece>& pieces) {
  if (text.empty()) return;
  if (pieces.empty() || pieces.back().control) pieces.emplace_back();
  pieces.back().text += text;
}

void append_control(std::string_view token, std::vector<TextPiece>& pieces) {
  pieces.push_back({.text = std::string(token), .control = true});
}

bool asks(Kind kind) { return kind == Kind::user || kind == Kind::developer; }

// Step 1: a user message joins the turn before it unless that one has a task, a tool result always.
Result<std::vector<V4Turn>> merge(std::span<const ChatMessage> messages) {
  std::vector<V4Turn> turns;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const bool tool = message.role == "tool", user = message.role == "user";
    if (!message.task.empty() && v4_task_token(message.task).empty())
      return error("messages[{}]: unknown task '{}'", i, message.task);
    const V4Turn::Block block{
        .tool_result = tool, .text = &message.content, .call_id = tool ? &message.tool_call_id : nullptr};
    if ((user || tool) && !turns.empty() && turns.back().kind == Kind::user && (tool || turns.back().task.empty())) {
      turns.back().blocks.push_back(block);
      continue;
    }
    V4Turn& turn = turns.emplace_back();
    turn.message = &message;
    turn.task = message.task;
    if (user || tool) {
      turn.kind = Kind::user;
      turn.blocks.push_back(block);
    } else if (message.role == "system") {
      turn.kind = Kind::system;
    } else if (message.role == "developer") {
      turn.kind = Kind::developer;
      if (message.content.empty()) return error("messages[{}]: a developer message needs content", i);
    } else if (message.role == "assistant") {
      turn.kind = Kind::assistant;
      turn.without_eos = message.without_eos;
    } else if (message.role == "latest_reminder") {
      turn.kind = Kind::latest_reminder;
    } else {
      return error(
          "messages[{}]: unknown role '{}'; known are system, developer, user, assistant, tool and "
          "latest_reminder",
          i, message.role);
    }
  }
  return turns;
}

// Step 2: the results in a turn take the order of the calls they answer; texts keep their places.
void sort_results(std::vector<V4Turn>& turns) {
  std::unordered_map<std::string_view, std::size_t> order;
  for (V4Turn& turn : turns) {
    if (turn.kind == Kind::assistant && !turn.message->tool_calls.empty()) {
      order.clear();
      for (std::size_t i = 0; i < turn.message->tool_calls.size(); ++i) order[turn.message->tool_calls[i].id] = i;
    }
    if (turn.kind != Kind::user || order.empty()) continue;
    // By the call, then as they came.
    std::vector<std::pair<std::pair<std::size_t, std::size_t>, V4Turn::Block>> results;
    for (const V4Turn::Block& block : turn.blocks) {
      if (!block.tool_result) continue;
      const auto call = order.find(*block.call_id);
      results.push_back({{call == order.end() ? 0 : call->second, results.size()}, block});
    }
    if (results.size() < 2) continue;
    std::sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::size_t next = 0;
    for (V4Turn::Block& block : turn.blocks)
      if (block.tool_result) block = results[next++].second;
  }
}

// The index of the last turn that asks; -1: none does.
std::ptrdiff_t last_question(const std::vector<V4Turn>& turns) {
  const auto last = std::find_if(turns.rbegin(), turns.rend(), [](const V4Turn& turn) { return asks(turn.kind); });
  return turns.rend() - last - 1;
}

// Step 4. Reasoning before the last question goes by the rule of the assistant's turn.
void prune(std::vector<V4Turn>& turns) {
  const std::ptrdiff_t last = last_question(turns);
  std::vector<V4Turn> kept;
  for (std::ptrdiff_t i = 0; i < std::ssize(turns); ++i)
    if (i >= last || turns[static_cast<std::size_t>(i)].kind != Kind::developer)
      kept.push_back(std::move(turns[static_cast<std::size_t>(i)]));
  turns = std::move(kept);
}

std::string_view effort_text(const V4Options& options) {
  if (!options.thinking) return {};
  if (options.profile == V4Profile::preview)
    return options.effort == V4Effort::max ? v4::kEffortTextA : std::string_view();
  if (options.effort == V4Effort::max) return v4::kEffortTextB;
  return options.effort == V4Effort::high ? v4::kEffortTextA : std::string_view();
}

void append_declarations(const ChatMessage& message, std::vector<TextPiece>& pieces) {
  if (!message.tools.empty()) {
    append_text(kBlockSeparator, pieces);
    append_v4_marked(v4::kToolsHead, pieces);
    for (std::size_t i = 0; i < message.tools.size(); ++i) {
      if (i > 0) append_text("\n", pieces);
      append_text(message.tools[i].function, pieces);
    }
    append_text(v4::kToolsFoot, pieces);
  }
  if (!message.response_format.empty()) {
    append_text(kBlockSeparator, pieces);
    append_text(v4::kResponseFormat, pieces);
    append_text(message.response_format, pieces);
  }
}

void append_user(const V4Turn& turn, std::vector<TextPiece>& pieces) {
  append_control(v4::kUser, pieces);
  for (std::size_t i = 0; i < turn.blocks.size(); ++i) {
    const V4Turn::Block& block = turn.blocks[i];
    if (i > 0) append_text(kBlockSeparator, pieces);
    if (block.tool_result) append_text("<tool_result>", pieces);
    append_text(*block.text, pieces);
    if (block.tool_result) append_text("</tool_result>", pieces);
  }
}

void append_assistant(const V4Turn& turn, std::vector<TextPiece>& pieces) {
  const ChatMessage& message = *turn.message;
  if (turn.thinking_part) append_text(message.reasoning_content.value_or(""), pieces);
  if (turn.open_reasoning) return;
  if (turn.thinking_part) append_control(v4::kEndThink, pieces);
  append_text(message.content, pieces);
  append_v4_calls(message.tool_calls, pieces);
  if (!turn.without_eos) append_control(v4::kEos, pieces);
}

void append_transition(const V4Turn& turn, std::vector<TextPiece>& pieces) {
  if (!turn.asks_assistant) return;
  if (turn.task.empty() || turn.task == "action") {
    append_control(v4::kAssistant, pieces);
    append_control(turn.opens_thinking ? v4::kThink : v4::kEndThink, pieces);
  }
  if (!turn.task.empty()) append_control(v4_task_token(turn.task), pieces);
}

}  // namespace

std::string_view v4_task_token(std::string_view task) {
  const auto* const found = std::find_if(kTasks.begin(), kTasks.end(), [&](const Task& t) { return t.name == task; });
  return found == kTasks.end() ? std::string_view() : found->token;
}

Result<V4Effort> v4_effort(std::string_view requested) {
  constexpr std::pair<std::string_view, V4Effort> kWords[] = {
      {"", V4Effort::high},     {"minimal", V4Effort::low}, {"low", V4Effort::low}, {"medium", V4Effort::high},
      {"high", V4Effort::high}, {"xhigh", V4Effort::high},  {"max", V4Effort::max}, {"ultra", V4Effort::max}};
  for (const auto& [word, effort] : kWords)
    if (word == requested) return effort;
  return error("reasoning effort '{}' is unknown; there are none, minimal, low, medium, high, xhigh, max and ultra",
               requested);
}

const char* v4_effort_name(V4Effort effort) {
  return effort == V4Effort::low ? "low" : effort == V4Effort::high ? "high" : "max";
}

Result<std::vector<V4Turn>> arrange_v4(std::span<const ChatMessage> messages, const V4Options& options) {
  auto turns = merge(messages);
  if (!turns || turns->empty()) return turns;
  sort_results(*turns);
  const bool declares = std::any_of(messages.begin(), messages.end(), [](const auto& m) { return !m.tools.empty(); });
  const bool drop = options.drop_thinking && !declares;
  if (options.thinking && drop) prune(*turns);

  const std::ptrdiff_t last = last_question(*turns), count = std::ssize(*turns);
  if (last >= 0 && !options.task.empty()) (*turns)[static_cast<std::size_t>(last)].task = options.task;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    V4Turn& turn = (*turns)[static_cast<std::size_t>(i)];
    const bool follows_task = i > 0 && !(*turns)[static_cast<std::size_t>(i - 1)].task.empty();
    turn.thinking_part = turn.kind == Kind::assistant && options.thinking && !follows_task && (!drop || i > last);
    const bool is_last = i + 1 == count;
    const Kind next = is_last ? Kind::assistant : (*turns)[static_cast<std::size_t>(i + 1)].kind;
    turn.asks_assistant = (asks(turn.kind) || !turn.task.empty()) &&
                          (is_last || next == Kind::assistant || next == Kind::latest_reminder);
    // An action's answer is part of thinking mode wherever it stands.
    turn.opens_thinking = options.thinking && (!turn.task.empty() || !drop || i >= last);
    if (is_last && turn.kind == Kind::assistant && options.continuation != Continuation::none) {
      turn.without_eos = true;
      turn.open_reasoning = options.continuation == Continuation::reasoning && turn.thinking_part;
    }
  }
  turns->front().bos = options.bos;
  turns->front().head = effort_text(options);
  return turns;
}

void append_v4_turn(const V4Turn& turn, std::vector<TextPiece>& pieces) {
  if (turn.bos) append_control(v4::kBos, pieces);
  append_text(turn.head, pieces);
  switch (turn.kind) {
    case Kind::user:
      append_user(turn, pieces);
      break;
    case Kind::assistant:
      append_assistant(turn, pieces);
      break;
    case Kind::latest_reminder:
      append_control(v4::kLatestReminder, pieces);
      append_text(turn.message->content, pieces);
      break;
    case Kind::developer:
      append_control(v4::kUser, pieces);
      [[fallthrough]];
    case Kind::system:
      append_text(turn.message->content, pieces);
      append_declarations(*turn.message, pieces);
      break;
  }
  append_transition(turn, pieces);
}

Result<std::vector<TextPiece>> encode_v4(std::span<const ChatMessage> messages, const V4Options& options) {
  const auto turns = arrange_v4(messages, options);
  if (!turns) return tl::unexpected(turns.error());
  std::vector<TextPiece> pieces;
  for (const V4Turn& turn : *turns) append_v4_turn(turn, pieces);
  return pieces;
}

void append_v4_marked(std::string_view text, std::vector<TextPiece>& pieces) {
  while (!text.empty()) {
    std::size_t at = text.size();
    std::string_view token;
    for (const std::string_view control : {v4::kThink, v4::kEndThink, v4::kDsml})
      if (const std::size_t here = text.find(control); here < at) {
        at = here;
        token = control;
      }
    append_text(text.substr(0, at), pieces);
    if (!token.empty()) append_control(token, pieces);
    text.remove_prefix(at + token.size());
  }
}

void append_v4_calls(std::span<const ToolCall> calls, std::vector<TextPiece>& pieces) {
  if (calls.empty()) return;
  const auto tag = [&](std::string_view slash, std::string_view rest) {
    append_text(slash, pieces);
    append_control(v4::kDsml, pieces);
    append_text(rest, pieces);
  };
  append_text(kBlockSeparator, pieces);
  tag("<", "tool_calls>\n");
  for (const ToolCall& call : calls) {
    tag("<", fmt::format("invoke name=\"{}\">\n", call.name));
    auto members = python_json_members(call.arguments);
    if (!members) members = std::vector<JsonMember>{{.key = "arguments", .is_string = true, .value = call.arguments}};
    for (const JsonMember& member : *members) {
      tag("<", fmt::format("parameter name=\"{}\" string=\"{}\">", member.key, member.is_string));
      append_text(member.value, pieces);
      tag("</", "parameter>\n");
    }
    if (members->empty()) append_text("\n", pieces);
    tag("</", "invoke>\n");
  }
  tag("</", "tool_calls>");
}

}  // namespace plumb
