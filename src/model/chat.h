#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plumb {

/// A function call of an assistant. `arguments` is JSON text as the model or the client wrote it.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;
};

/// A declared function: its name, the function object (`{"name": …, "parameters": …}`) as python_json prints it, and
/// what its parameter schema says about the first level.
struct ChatTool {
  std::string name;
  std::string function;
  std::vector<std::string> properties;
  std::vector<std::string> required;
};

/// One message of a conversation.
struct ChatMessage {
  std::string role;                              // system, user, assistant, tool; V4 also developer, latest_reminder
  std::string content;                           // text; never null
  std::optional<std::string> reasoning_content;  // assistant: its thinking; none: the client sent none
  std::vector<ToolCall> tool_calls;              // assistant
  std::string tool_call_id;                      // tool: the call this is the result of
  std::vector<ChatTool> tools;                   // system, developer: declared by this message
  std::string response_format;                   // system, developer: a schema as python_json prints it; empty: none
  std::string task;                              // user, developer: a quick task of V4; empty: none
  bool without_eos = false;                      // assistant: the turn stays open
};

/// What the last message, an assistant's, is: a finished turn, the start of an answer, or the start of its thinking.
enum class Continuation { none, content, reasoning };

/// Whether the model may, must not or must call a function.
enum class ToolChoice { automatic, none, required, named };

/// What happens when thinking that the model produced was not sent back with its tool calls.
enum class MissingReasoning { warn, reject, allow };

/// A conversation and how it is to be rendered. What is not given has the encoding's default.
struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<ChatTool> tools;  // declared by the request, beside those of messages
  ToolChoice tool_choice = ToolChoice::automatic;
  std::string tool_name;         // of ToolChoice::named
  std::optional<bool> thinking;  // none: the encoding's default
  std::string effort;            // of thinking; empty: the encoding's default
  bool drop_thinking = true;     // V4: thinking before the last user turn is left out, unless tools are declared
  std::string task;              // V4: the last user turn asks for this quick task; empty: none
  Continuation continuation = Continuation::none;
  bool literal_specials = true;     // control strings inside contents are plain bytes; false: as the reference encoder
  bool developer_is_system = true;  // V4: developer messages at the start become system messages
  MissingReasoning missing_reasoning = MissingReasoning::warn;
};

}  // namespace plumb
