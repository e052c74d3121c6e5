#include "model/tool_results.h"

#include <gtest/gtest.h>

namespace plumb {
namespace {

ChatMessage calls(const std::vector<std::string>& ids) {
  ChatMessage message{.role = "assistant"};
  for (const std::string& id : ids) message.tool_calls.push_back({id, "lookup", "{}"});
  return message;
}

ChatMessage result(std::string id) {
  ChatMessage message{.role = "tool", .content = "ok"};
  message.tool_call_id = std::move(id);
  return message;
}

using Messages = std::vector<ChatMessage>;
using Warnings = std::vector<std::string>;

TEST(ToolResults, OneForEveryCallIsWhatIsExpected) {
  const ChatMessage question{.role = "user", .content = "x"};
  EXPECT_EQ(tool_result_warnings(Messages{question}), Warnings{});
  EXPECT_EQ(tool_result_warnings(Messages{calls({"a", "b"}), result("b"), result("a")}), Warnings{});
  EXPECT_EQ(tool_result_warnings(Messages{calls({"a"}), result("a"), calls({"a"}), result("a")}), Warnings{});
  EXPECT_EQ(tool_result_warnings(Messages{calls({""}), result("")}), Warnings{});
}

TEST(ToolResults, WhatDoesNotFitIsNamed) {
  const Warnings unknown{"unknown_tool_call_id"}, missing{"missing_tool_result"};
  EXPECT_EQ(tool_result_warnings(Messages{result("a")}), unknown);
  EXPECT_EQ(tool_result_warnings(Messages{calls({"a"}), result("a"), result("a")}), unknown);
  EXPECT_EQ(tool_result_warnings(Messages{result("a"), calls({"a"}), result("a")}), unknown);
  EXPECT_EQ(tool_result_warnings(Messages{calls({"a", "b"}), result("a")}), missing);
  EXPECT_EQ(tool_result_warnings(Messages{calls({"a"}), result("b")}),
            (Warnings{"unknown_tool_call_id", "missing_tool_result"}));
  EXPECT_EQ(tool_result_warnings(Messages{calls({"a"}), result("")}),
            (Warnings{"unknown_tool_call_id", "missing_tool_result"}));
}

}  // namespace
}  // namespace plumb
