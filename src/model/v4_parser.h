#pragma once

#include <memory>
#include <string_view>

#include "model/reply_parser.h"

namespace plumb {

/// The reader of DeepSeek-V4's answers, a state machine over bytes:
///
///   answer = [reasoning "</think>"] content ["\n\n" block]      (the start only if the prompt ended in <think>)
///   block  = "<｜DSML｜tool_calls>" {invoke} "</｜DSML｜tool_calls>"
///   invoke = '<｜DSML｜invoke name="' NAME '">' {param} "</｜DSML｜invoke>"
///   param  = '<｜DSML｜parameter name="' KEY '" string="' ("true"|"false") '">' VALUE "</｜DSML｜parameter>"
///
/// A call's arguments are {"KEY": v, …}: v is VALUE as a JSON string, or VALUE itself where it is JSON. White space
/// around a block and between tags belongs to nobody. Irregular answers:
/// - a block inside the thinking ends it; a second </think>, and <think> at the start, are skipped;
/// - an invoke without its block is a call if the function is declared, else text; so is a block inside a Markdown
///   fence: text;
/// - string="false" with something else than JSON gives the raw text as a string; one parameter "arguments" or "input"
///   that the function does not have and whose value is an object is unwrapped; a bare JSON object is taken as is;
/// - a tag that does not belong where it stands, a parameter given twice, a parameter or call without its end: the call
///   is broken, its text and all that follows is content.
/// What follows a block is left out. Warnings: second_end_of_thinking, unterminated_reasoning, unknown_tool,
/// schema_violation, invalid_json_value, unwrapped_arguments, malformed_call, unterminated_block, text_after_block.
std::unique_ptr<ReplyParser> v4_reply_parser(ReplyOptions options, bool starts_in_reasoning);

}  // namespace plumb
