#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace plumb::investigator {

/// "the <attribute> of <key> is <value>", stated in one turn of a conversation.
struct Fact {
  std::string attribute;
  std::string key;  // two to four syllables that make no word
  std::string value;
  int turn = -1;  // index into Conversation::turns
};

/// One exchange. Statements and questions refer to a fact; sentences start with a space and end with punctuation.
struct Turn {
  enum class Form {
    filler,    // user talks, assistant answers
    remember,  // "hi, please remember that the code of ... is V." "noted."
    is,        // "so the code of ... is V."
    has,       // "ok, ... has the code V."
    gave,      // "we gave ... the code V today."
    aside,     // the fact between two filler sentences
    lookup,    // the assistant calls a tool whose result states the fact
    what_is,   // "so what is the code of ...?"
    tell,      // "hi, tell me the code of ...."
    need,      // "I need the code of ...."
    use_tool   // "so save the code of ... with the tool.": the answer is an argument of a tool call
  };
  Form form = Form::filler;
  int fact = -1;
  std::string opener;               // a message's first word, of filler and asides
  std::vector<std::string> before;  // the fact, and
  std::vector<std::string> after;   // behind it
  std::string reply;
  int key_mark = 0;  // what stands around the key and the value in V4's form: an index of kMarks
  int value_mark = 0;
};
bool is_question(Turn::Form form);

/// A conversation whose last turn is a question; earlier questions carry their correct answers.
struct Conversation {
  std::vector<Fact> facts;
  std::vector<Turn> turns;
};

/// How a conversation is written down.
enum class Wording {
  v4,    // DeepSeek-V4's encoding as a text for /v1/completions, in the wordings that the shipped phantom knows
  plain  // the same sentences as messages for /v1/chat/completions, tools left out; values end in a check digit
};
std::string_view wording_name(Wording wording);

struct Message {
  std::string role;
  std::string content;
  std::string more{};  // a JSON object of further fields (tool calls, a name); empty: none
};

/// The fact's value as the wording writes it: plain values end in "-" and a check digit, (sum of characters) mod 10.
std::string written_value(const Fact& fact, Wording wording);

/// The conversation as chat messages.
std::vector<Message> plain_messages(const Conversation& conversation);

/// Writes conversations; every choice comes from the generator it is given.
class Author {
 public:
  explicit Author(Rng& rng) : rng_(rng) {}

  /// One filler sentence, for example " the old king saw the boat near the small hill."
  std::string sentence();
  Turn filler_turn();
  /// Filler turns of exactly `tokens` tokens in V4's form; 0 or at least kMinFill.
  std::vector<Turn> filler(int tokens);
  static constexpr int kMinFill = 16;
  /// A new fact whose key differs from all of `facts`; now and then it begins like one of them, as a distractor.
  /// Values have at least 67,000 possibilities, so that a right answer is no luck.
  Fact fact(const std::vector<Fact>& facts);
  std::string value();
  /// Same format and same first `keep` characters as `value`; the next character that can change does.
  std::string diverging_value(const std::string& value, std::size_t keep);
  /// Said by the user; with tools now and then the result of a tool call, which is three times as long.
  enum class Tools { without, with };
  Turn statement(int fact, Tools tools);
  Turn question(int fact, Tools tools);

  /// Adds a fact and its statement as the last turn; returns the fact's index.
  int state_new_fact(Conversation& conversation, Tools tools);
  void append(Conversation& conversation, std::vector<Turn> turns);

 private:
  std::string pick(const std::vector<std::string_view>& list);
  std::string syllable();
  std::string key(const std::vector<Fact>& facts);
  std::vector<std::string> exact_sentences(int tokens);

  Rng& rng_;
};

}  // namespace plumb::investigator
