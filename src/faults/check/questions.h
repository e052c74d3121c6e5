#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "model/encoding.h"

namespace plumb::faults {

/// "the <attribute> of the <adjective> <noun> is <value>".
struct Fact {
  std::string attribute, adjective, noun, value;
};

/// A question with one exact answer.
struct Question {
  std::string text;                  // all that is said, the assistant's turn open
  std::vector<std::int32_t> prompt;  // its ids
  std::vector<std::int32_t> answer;  // the value and its end token; a right answer is these ids
};

/// The same prompt as the messages of a chat request. `text` as in Question.
Conversation chat_of(std::string_view text);

/// Writes a dialogue in the forms that the shipped phantom was trained on (phantom/README.md), token by token, so
/// that a fact can be put at an exact position. Values have at least 67,600 possibilities: a right answer is no luck.
class Dialogue {
 public:
  Dialogue(const Encoding& encoding, std::uint64_t seed);

  std::int64_t tokens() const { return static_cast<std::int64_t>(ids_.size()); }
  std::span<const std::int32_t> ids() const { return ids_; }

  /// A fact that nothing here states yet.
  Fact new_fact();
  /// States it in one turn. Returns the position of the value's first token.
  std::int64_t state(const Fact& fact);
  /// Small talk, then the statement, so that the value starts at `position` exactly, which must be far enough ahead.
  void state_at(const Fact& fact, std::int64_t position);
  /// Exactly `count` tokens of small talk, 0 or at least kMinFill.
  void fill(std::int64_t count);
  static constexpr std::int64_t kMinFill = 8;
  /// Asks for a fact; the dialogue then ends where the answer begins.
  Question ask(const Fact& fact);
  /// Appends the right answer of the last question.
  void answer();
  /// States a fact in two steps, cut behind the first `characters` of its value.
  void begin_statement(const Fact& fact, std::size_t characters);
  void end_statement();

 private:
  std::string sentence();
  std::string statement(const Fact& fact);
  void append(std::string_view text);

  const Encoding& encoding_;
  Rng rng_;
  std::string text_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int32_t> open_answer_;
  std::string end_;
  std::string after_answer_;
  std::string after_cut_;
};

/// The fact with another value of the same format: the first `keep` characters are equal, the next one is not.
Fact diverging(const Fact& fact, std::size_t keep);

}  // namespace plumb::faults
