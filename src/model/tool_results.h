#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/chat.h"

namespace plumb {

/// What does not fit between tool calls and their results, by tool_call_id: "unknown_tool_call_id" when a tool message
/// answers no call before it that still lacks a result, "missing_tool_result" when a call has none at the end.
std::vector<std::string> tool_result_warnings(std::span<const ChatMessage> messages);

}  // namespace plumb
