#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace plumb::investigator {

/// "the <attribute> of the <adjective> <noun> is <value>", stated in one turn of a conversation.
struct Fact {
  std::string attribute;
  std::string adjective;
  std::string noun;
  std::string value;
  int turn = -1;  // index into Conversation::turns
};

/// One exchange. Statements and questions refer to a fact; sentences start with a space and end with punctuation.
struct Turn {
  enum class Form {
    filler,      // user talks, assistant answers with a sentence
    remember,    // "please remember that the code of ... is V." "noted."
    has,         // "the amber falcon has code V." "ok."
    lookup,      // the assistant calls a tool whose result states the fact
    aside,       // the fact between two filler sentences
    what_is,     // "what is the code of ...?"
    tell_again,  // "tell me the amber falcon code again."
    use_tool     // "use the tool for the code of ...": the answer is the argument of a tool call
  };
  Form form = Form::filler;
  int fact = -1;
  std::vector<std::string> before;
  std::vector<std::string> after;
  std::string reply;
};
bool is_question(Turn::Form form);

/// A conversation whose last turn is a question; earlier questions carry their correct answers.
struct Conversation {
  std::vector<Fact> facts;
  std::vector<Turn> turns;
};

/// How a conversation is written down.
enum class Wording {
  phantom,  // the forms the shipped phantom was trained on: role markers in a text for /v1/completions
  plain     // plain English messages for /v1/chat/completions; values end in a check digit
};
std::string_view wording_name(Wording wording);

struct Message {
  std::string role;
  std::string content;
  std::string more{};  // a JSON object of further fields (tool calls, a name); empty: none
};

/// The fact's value as the wording writes it: plain values end in "-" and a check digit, (sum of characters) mod 10.
std::string written_value(const Fact& fact, Wording wording);

/// One turn in the phantom's form. `open`: a question without its answer (the end of a prompt).
std::string phantom_turn(const Turn& turn, const std::vector<Fact>& facts, bool open);
/// "<bos>" and all turns, the last one open when it is a question.
std::string phantom_text(const Conversation& conversation);
/// The same conversation as chat messages.
std::vector<Message> plain_messages(const Conversation& conversation);

/// Tokens of a text by the phantom's rule: a special marker, " word" of the list, else one per byte. Exact for the
/// shipped phantom; for any other tokenizer an estimate.
int phantom_tokens(std::string_view text);

/// Writes conversations; every choice comes from the generator it is given.
class Author {
 public:
  explicit Author(Rng& rng) : rng_(rng) {}

  /// One filler sentence, for example " the amber falcon caught the boat near the old mill."
  std::string sentence();
  Turn filler_turn();
  /// Filler turns of exactly `tokens` phantom tokens; 0 or at least kMinFill.
  std::vector<Turn> filler(int tokens);
  static constexpr int kMinFill = 7;
  /// A new fact whose (attribute, adjective, noun) differs from all of `facts`; often a near relative of one of them,
  /// as a distractor. Values have at least 67,600 possibilities, so that a right answer is no luck.
  Fact fact(const std::vector<Fact>& facts);
  std::string value();
  /// Same format and same first `keep` characters as `value`; the next character that can change does.
  std::string diverging_value(const std::string& value, std::size_t keep);
  Turn statement(int fact);
  Turn question(int fact);

  /// Adds a fact and its statement as the last turn; returns the fact's index.
  int state_new_fact(Conversation& conversation);
  void append(Conversation& conversation, std::vector<Turn> turns);

 private:
  std::string pick(const std::vector<std::string_view>& list);
  std::vector<std::string> exact_sentences(int tokens);

  Rng& rng_;
};

}  // namespace plumb::investigator
