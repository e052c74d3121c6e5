#include "model/tool_results.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace plumb {

std::vector<std::string> tool_result_warnings(std::span<const ChatMessage> messages) {
  std::unordered_map<std::string_view, int> open;  // calls without a result; some clients use one id for many
  bool unknown = false;
  for (const ChatMessage& message : messages) {
    for (const ToolCall& call : message.tool_calls) ++open[call.id];
    if (message.role != "tool") continue;
    int& count = open[message.tool_call_id];
    unknown |= count == 0;
    count = std::max(0, count - 1);
  }
  std::vector<std::string> warnings;
  if (unknown) warnings.emplace_back("unknown_tool_call_id");
  if (std::any_of(open.begin(), open.end(), [](const auto& entry) { return entry.second > 0; }))
    warnings.emplace_back("missing_tool_result");
  return warnings;
}

}  // namespace plumb
