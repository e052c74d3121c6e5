#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "investigator/prompts/conversation.h"

namespace plumb::investigator {

/// What stands around keys and values in V4's form, so that they are spelt in single characters wherever they occur
/// (phantom/TASKS.md).
struct KeyMark {
  std::string_view left, right;
};
inline constexpr std::array<KeyMark, 4> kMarks{KeyMark{"\"", "\""}, {"[", "]"}, {"(", ")"}, {"*", "*"}};

/// What the user says in a turn about fact `f`, in small letters: a statement, a question, filler, or the wish that
/// makes the assistant call a tool.
std::string v4_said(const Turn& turn, const Fact& f);

/// One turn in V4's encoding, tool calls as DSML. `open`: a question without its answer (the end of a prompt).
std::string v4_turn(const Turn& turn, const std::vector<Fact>& facts, bool open);
/// The begin of sentence and all turns, the last one open when it is a question.
std::string v4_text(const Conversation& conversation);

/// Tokens of a text of the probes by the phantom's tokenizer: a control token, " word" of the list, a mark with its
/// space or punctuation, else one per byte. Exact for the shipped phantom (a test holds it against its tokenizer.json);
/// for any other tokenizer an estimate.
int v4_tokens(std::string_view text);

/// Whether no two letters of a key or a value are one token of the phantom's.
bool is_spelt(std::string_view key_or_value);

}  // namespace plumb::investigator
