#pragma once

#include <memory>

#include "model/reply_parser.h"

namespace plumb {

/// The reader of the phantom's answers: text behind one space, or, with tools, `<call> NAME TEXT</call>`, whose
/// arguments are {"text": TEXT} and which ends the answer. A call that has no name or does not end is content.
/// Warnings: unknown_tool, malformed_call, unterminated_block.
std::unique_ptr<ReplyParser> phantom_reply_parser(ReplyOptions options);

}  // namespace plumb
