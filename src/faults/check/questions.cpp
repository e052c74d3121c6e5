#include "faults/check/questions.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "model/v4_chat.h"

namespace plumb::faults {
namespace {

// Words and wordings of phantom/words.py, some of each kind: facts differ by their keys and values. Each word is one
// token behind a space.
constexpr std::array<std::string_view, 24> kAdjectives{
    "old",  "new",  "big",  "small", "red",  "blue",  "dark", "cold",  "warm",  "wet",  "long", "short",
    "soft", "hard", "deep", "flat",  "slow", "quick", "late", "early", "quiet", "loud", "tall", "full"};
constexpr std::array<std::string_view, 36> kNouns{
    "man",  "king", "bird", "fish", "boat", "ship", "train", "road", "river", "lake", "hill", "wall",
    "door", "room", "farm", "town", "shop", "tree", "leaf",  "seed", "stone", "rock", "rain", "wind",
    "star", "moon", "book", "page", "lamp", "iron", "bread", "milk", "clock", "bear", "wolf", "frog"};
constexpr std::array<std::string_view, 16> kVerbs{"saw",    "met",     "found",   "took",   "held",   "sold",
                                                  "kept",   "lost",    "moved",   "passed", "opened", "closed",
                                                  "filled", "crossed", "watched", "painted"};
constexpr std::array<std::string_view, 10> kPrepositions{"in",     "on",    "near",   "under", "over",
                                                         "behind", "after", "before", "from",  "past"};
constexpr std::array<std::string_view, 8> kAdverbs{"again", "today", "then", "often", "once", "soon", "here", "still"};
constexpr std::array<std::string_view, 4> kSubjects{"we", "they", "you", "nobody"};
constexpr std::array<std::string_view, 8> kAttributes{"code",   "pin",  "badge", "label",
                                                      "ticket", "name", "sign",  "token"};
constexpr std::array<std::string_view, 4> kReplies{"ok.", "noted.", "I see.", "done."};
constexpr std::array<std::string_view, 4> kOpeners{"so", "well", "now", "yes"};
// {0} the attribute, {1} the key and {2} the value with their marks.
constexpr std::array<std::string_view, 6> kFacts{
    "so the {0} of {1} is {2}.",     "ok, {1} has the {0} {2}.",         "so for {1} use the {0} {2}.",
    "we set the {0} of {1} to {2}.", "so {1} got a new entry: {0} {2}.", "as a note, {0} {2} goes with {1}."};
constexpr std::array<std::string_view, 6> kQuestions{"so what is the {0} of {1}?",  "hi, tell me the {0} of {1}.",
                                                     "do you know the {0} of {1}?", "I need the {0} of {1}.",
                                                     "we want the {0} of {1} now.", "now say the {0} of {1} again."};
constexpr std::array<std::string_view, 3> kFetches{"so get the {0} of {1}.",
                                                   "please find the {0} of {1} with the tool.", "do get {1}, its {0}."};
constexpr std::array<std::string_view, 3> kResults{"{0} = {2}", "{0} of {1}: {2}", "found {0} {2}"};
struct Marks {
  std::string_view left, right;
};
constexpr std::array<Marks, 5> kMarks{Marks{"\"", "\""}, {"'", "'"}, {"[", "]"}, {"<", ">"}, {"#", ""}};
constexpr std::string_view kConsonants = "bdfgklmnprstvz", kVowels = "aeiou";
constexpr std::string_view kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", kLower = "abcdefghijklmnopqrstuvwxyz",
                           kDigits = "0123456789";

template <class List>
auto pick(const List& list, Rng& rng) {
  return list[static_cast<std::size_t>(rng.below(list.size()))];
}

// Six to eight characters of upper case and digits, or of all three kinds.
std::string new_value(Rng& rng) {
  std::string alphabet = std::string(kUpper) + std::string(kDigits);
  if (rng.below(2) == 0) alphabet += kLower;
  std::string value;
  for (std::uint64_t left = 6 + rng.below(3); left > 0; --left) value += pick(alphabet, rng);
  return value;
}

std::string new_key(Rng& rng) {
  std::string key;
  for (std::uint64_t left = 2 + rng.below(2); left > 0; --left) {
    key += pick(kConsonants, rng);
    key += pick(kVowels, rng);
  }
  return key;
}

ChatMessage user(std::string text) { return {.role = "user", .content = std::move(text)}; }
ChatMessage assistant(std::string text) { return {.role = "assistant", .content = std::move(text)}; }

}  // namespace

Fact diverging(const Fact& fact, std::size_t keep) {
  Fact other = fact;
  CHECK(keep < other.value.size());
  char& c = other.value[keep];
  const auto of = [&](std::string_view kind) { return kind.find(c) != std::string_view::npos; };
  const std::string_view kind = of(kDigits) ? kDigits : of(kUpper) ? kUpper : kLower;
  c = kind[(kind.find(c) + kind.size() / 2) % kind.size()];
  return other;
}

Dialogue::Dialogue(const Encoding& encoding, std::uint64_t seed)
    : encoding_(encoding), rng_(seed), ids_(rendered({})) {}

// Like a server renders what is finished, and what ends with a user's turn.
std::vector<std::int32_t> Dialogue::rendered(const Messages& more) const {
  Messages all = messages_;
  all.insert(all.end(), more.begin(), more.end());
  if (all.empty()) return {encoding_.bos()};
  const auto pieces = encode_v4(all, {});
  CHECK(pieces.has_value());
  std::string text;
  for (const TextPiece& piece : *pieces) text += piece.text;
  return encoding_.encode(text);
}

void Dialogue::append(const Messages& more) {
  ids_ = rendered(more);
  messages_.insert(messages_.end(), more.begin(), more.end());
}

Fact Dialogue::new_fact() {
  Fact fact;
  fact.attribute = pick(kAttributes, rng_);
  fact.key = new_key(rng_);
  do fact.value = new_value(rng_);  // few letters in a row are one token
  while (encoding_.encode(fact.value).size() != fact.value.size());
  return fact;
}

std::string Dialogue::sentence() {
  const auto noun = [&] { return pick(kNouns, rng_); };
  const auto adjective = [&] { return pick(kAdjectives, rng_); };
  if (rng_.below(3) != 0) {
    const auto a = adjective(), n = noun(), v = pick(kVerbs, rng_), object = noun(), p = pick(kPrepositions, rng_);
    const auto b = adjective(), place = noun();
    return fmt::format(" the {} {} {} the {} {} the {} {}.", a, n, v, object, p, b, place);
  }
  const auto s = pick(kSubjects, rng_), v = pick(kVerbs, rng_), n = noun(), w = pick(kAdverbs, rng_);
  return fmt::format(" {} {} the {} {}.", s, v, n, w);
}

void Dialogue::fill(std::int64_t count) {
  CHECK(count == 0 || count >= kMinFill);
  const std::int64_t end = tokens() + count;
  constexpr std::int64_t kLongestTurn = 100;
  while (end > tokens()) {
    std::int64_t room = end - tokens();
    if (room > kLongestTurn) room = 40 + static_cast<std::int64_t>(rng_.below(44));
    const std::string reply(pick(kReplies, rng_));
    std::string text(pick(kOpeners, rng_));
    const auto turn = [&](const std::string& more) { return Messages{user(text + more + "."), assistant(reply)}; };
    while (true) {
      std::string next = sentence();
      next.pop_back();                         // the full stop is the turn's
      if (cost(turn(next)) + 2 > room) break;  // a word and a full stop may have to follow
      text += next + ".";
    }
    // Stretched to the token: a word is one.
    if (text.back() == '.') text += " " + std::string(pick(kNouns, rng_));
    for (std::int64_t left = room - cost(turn("")); left > 0; --left) text += " " + std::string(pick(kNouns, rng_));
    CHECK(cost(turn("")) == room);
    append(turn(""));
  }
}

std::string Dialogue::worded(std::string_view wording, const Fact& fact) {
  const Marks a = pick(kMarks, rng_), b = pick(kMarks, rng_);
  const auto key = fmt::format("{}{}{}", a.left, fact.key, a.right);
  const auto value = fmt::format("{}{}{}", b.left, fact.value, b.right);
  return fmt::format(fmt::runtime(wording), fact.attribute, key, value);
}

Dialogue::Messages Dialogue::statement(const Fact& fact) {
  if (rng_.below(3) != 0) return {user(worded(pick(kFacts, rng_), fact)), assistant(std::string(pick(kReplies, rng_)))};
  const std::string id = fmt::format("call_{}", ++calls_);
  ChatMessage call = assistant("");
  call.tool_calls = {{.id = id, .name = "get", .arguments = fmt::format(R"({{"key": "{}"}})", fact.key)}};
  ChatMessage result{.role = "tool", .content = worded(pick(kResults, rng_), fact), .tool_call_id = id};
  return {user(worded(pick(kFetches, rng_), fact)), call, result, assistant(std::string(pick(kReplies, rng_)))};
}

std::int64_t Dialogue::value_position(const Messages& said, const Fact& fact) const {
  const auto ids = rendered(said);
  const auto value = encoding_.encode(fact.value);
  const auto found = std::search(ids.begin() + tokens(), ids.end(), value.begin(), value.end());
  CHECK(found != ids.end());
  return found - ids.begin();
}

std::int64_t Dialogue::state(const Fact& fact) {
  const Messages said = statement(fact);
  const std::int64_t position = value_position(said, fact);
  append(said);
  return position;
}

void Dialogue::state_at(const Fact& fact, std::int64_t position) {
  const Messages said = statement(fact);
  fill(position - value_position(said, fact));
  append(said);
}

std::vector<std::int32_t> Dialogue::state_in_two(const Fact& fact, std::size_t characters) {
  const std::int64_t position = state(fact);
  return {ids_.begin(), ids_.begin() + position + static_cast<std::ptrdiff_t>(characters)};
}

Question Dialogue::open_question(const Fact& fact, std::string text) {
  append({user(std::move(text))});
  open_answer_ = fact.value;
  Question question{.chat = {}, .prompt = ids_, .answer = encoding_.encode(fact.value)};
  question.chat.messages = messages_;
  question.chat.thinking = false;
  question.answer.push_back(encoding_.eos());
  return question;
}

Question Dialogue::ask(const Fact& fact) { return open_question(fact, worded(pick(kQuestions, rng_), fact)); }

Question Dialogue::ask_at(const Fact& fact, std::int64_t prompt_tokens) {
  const std::string question = worded(pick(kQuestions, rng_), fact);
  if (const std::int64_t room = prompt_tokens - tokens() - cost({user(question)}); room >= kMinFill) {
    fill(room);
    return open_question(fact, question);
  }
  // Too little for a turn: before the question in its own.
  std::string talk = "so";
  const auto asked = [&] { return user(talk + ". " + question); };
  while (cost({asked()}) < prompt_tokens - tokens()) talk += " " + std::string(pick(kNouns, rng_));
  Question made = open_question(fact, asked().content);
  CHECK(tokens() == prompt_tokens);
  return made;
}

void Dialogue::answer() {
  CHECK(!open_answer_.empty());
  append({assistant(std::exchange(open_answer_, {}))});
}

}  // namespace plumb::faults
