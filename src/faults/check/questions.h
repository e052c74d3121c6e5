#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "model/chat.h"
#include "model/encoding.h"

namespace plumb::faults {

/// "the <attribute> of <key> is <value>".
struct Fact {
  std::string attribute, key, value;
};

/// A question with one exact answer.
struct Question {
  Conversation chat;                 // ends with what is asked
  std::vector<std::int32_t> prompt;  // its ids
  std::vector<std::int32_t> answer;  // the answer and its end token; a right one is these ids
};

/// Writes a dialogue in V4's chat form, in wordings that the shipped phantom was trained on (phantom/words.py), to the
/// token, so that a fact can be put at an exact position. Values have at least 36^6 possibilities: a right answer is no
/// luck.
class Dialogue {
 public:
  Dialogue(const Encoding& encoding, std::uint64_t seed);

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids_.size()); }
  std::span<const std::int32_t> ids() const { return ids_; }

  /// A fact that nothing here states yet.
  Fact new_fact();
  /// States it: said by the user, or brought by a tool. Returns the position of the value's first token.
  std::int64_t state(const Fact& fact);
  /// Small talk, then the statement, so that the value starts at `position` exactly, which must be far enough ahead.
  void state_at(const Fact& fact, std::int64_t position);
  /// States it, and returns the ids up to behind the first `characters` of its value, the user's turn open.
  std::vector<std::int32_t> state_in_two(const Fact& fact, std::size_t characters);
  /// Exactly `count` tokens of small talk, 0 or at least kMinFill.
  void fill(std::int64_t count);
  static constexpr std::int64_t kMinFill = 16;
  /// Asks for a fact; the dialogue then ends where the answer begins.
  Question ask(const Fact& fact);
  /// The same with small talk before the question, so that the prompt has exactly so many tokens: at least 40 more than
  /// now.
  Question ask_at(const Fact& fact, std::int64_t prompt_tokens);
  /// Appends the right answer of the last question.
  void answer();

 private:
  using Messages = std::vector<ChatMessage>;
  std::string sentence();
  std::string worded(std::string_view wording, const Fact& fact);
  Messages statement(const Fact& fact);
  std::vector<std::int32_t> rendered(const Messages& more) const;
  std::int64_t cost(const Messages& more) const { return static_cast<std::int64_t>(rendered(more).size()) - tokens(); }
  std::int64_t value_position(const Messages& said, const Fact& fact) const;
  void append(const Messages& more);
  Question open_question(const Fact& fact, std::string text);

  const Encoding& encoding_;
  Rng rng_;
  Messages messages_;
  std::vector<std::int32_t> ids_;
  std::string open_answer_;
  int calls_ = 0;
};

/// The fact with another value of the same format: the first `keep` characters are equal, the next one is not.
Fact diverging(const Fact& fact, std::size_t keep);

}  // namespace plumb::faults
