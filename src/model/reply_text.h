#pragma once

#include <string>
#include <vector>

#include "model/reply_parser.h"

namespace plumb {

/// An answer put together from its events.
struct ReplyText {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;  // without ids
  std::vector<std::string> warnings;
  bool broken = false;  // a call did not end well: its text is in the content

  void add(const ReplyEvent& event);
};

}  // namespace plumb
