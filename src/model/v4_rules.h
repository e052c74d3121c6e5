#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model/chat.h"
#include "model/v4_chat.h"

namespace plumb {

/// A conversation of an API made ready for the reference encoder.
struct V4Conversation {
  std::vector<ChatMessage> messages;
  V4Options options;
  std::vector<TextPiece> forced;      // after the prompt: the start of the call that tool_choice demands
  bool opens_reasoning = false;       // the answer begins inside <think>
  std::vector<std::string> warnings;  // kinds, each once: what the model will not see as the client may think
};

/// What the reference encoder leaves to whoever calls it, and what it would let pass silently:
/// - developer messages at the start become system text; the request's tools join the first system message, which is
///   made when there is none; adjacent assistant messages become one;
/// - tool_choice none declares nothing, yet keeps the thinking as if tools were declared; required and named start the
///   call in the prompt;
/// - thinking is on unless it is switched off.
/// Errors name the message: a conversation that ends without a question and without `continuation`, a latest_reminder
/// behind the question it belongs before, a value that would end its own parameter, adjacent assistant messages that
/// cannot become one, a forced call while thinking (the model thinks first), thinking that was not sent back when that
/// is to be rejected, and all that arrange_v4 refuses.
Result<V4Conversation> prepare_v4(Conversation conversation, V4Profile profile);

}  // namespace plumb
