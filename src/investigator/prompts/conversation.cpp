#include "investigator/prompts/conversation.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.h"
#include "investigator/prompts/v4_text.h"
#include "investigator/prompts/words.h"

namespace plumb::investigator {
namespace {

// L a letter, D a digit. "DDDD" is left out: one in 10,000 is too easily guessed for a probe.
constexpr std::array<std::string_view, 5> kValueFormats{"LD-DD-LL", "LLDD", "LD-LL-DD", "LLL-DD", "DL-LD"};
constexpr std::string_view kConsonants = "bdfgklmnprstvz", kVowels = "aeiou";

constexpr double kNearRelative = 0.15;  // a key that begins like one that is known
constexpr int kAttempts = 1000;         // for a key or value that is still free; there are 70^2 keys at least
constexpr int kLongestExactSentence = 9;
constexpr std::size_t kLongestKey = 12;

}  // namespace

bool is_question(Turn::Form form) {
  return form == Turn::Form::what_is || form == Turn::Form::tell || form == Turn::Form::need ||
         form == Turn::Form::use_tool;
}

std::string_view wording_name(Wording wording) { return wording == Wording::v4 ? "v4" : "plain"; }

std::string written_value(const Fact& fact, Wording wording) {
  if (wording == Wording::v4) return fact.value;
  int sum = 0;
  for (const char c : fact.value) sum += static_cast<unsigned char>(c);
  return fmt::format("{}-{}", fact.value, sum % 10);
}

std::vector<Message> plain_messages(const Conversation& conversation) {
  using Form = Turn::Form;
  std::vector<Message> messages;
  for (std::size_t i = 0; i < conversation.turns.size(); ++i) {
    Turn turn = conversation.turns[i];
    Fact fact;
    if (turn.form != Form::filler) {
      fact = conversation.facts.at(static_cast<std::size_t>(turn.fact));
      fact.value = written_value(fact, Wording::plain);
    }
    turn.key_mark = turn.value_mark = 0;
    std::string reply = turn.reply;
    std::string said;
    if (turn.form == Form::lookup) {
      turn.form = Form::is;
      said = "so the tool found it: " + v4_said(turn, fact);
    } else if (is_question(turn.form)) {
      if (turn.form == Form::use_tool) turn.form = Form::what_is;
      // A model that talks much would meet its length limit; the sentence is of words that the phantom has.
      said = fmt::format("{} please say the {} alone.", v4_said(turn, fact), fact.attribute);
      reply = fact.value;
    } else {
      said = v4_said(turn, fact);
    }
    messages.push_back({"user", said});
    if (!(is_question(turn.form) && i + 1 == conversation.turns.size())) messages.push_back({"assistant", reply});
  }
  return messages;
}

std::string Author::pick(const std::vector<std::string_view>& list) {
  return std::string(list[static_cast<std::size_t>(rng_.below(list.size()))]);
}

std::string Author::sentence() {
  const Words& w = words();
  const double kind = rng_.uniform();
  if (kind < 0.5) {
    const std::string a1 = pick(w.adjectives), n1 = pick(w.nouns), v = pick(w.verbs), n2 = pick(w.nouns);
    const std::string p = pick(w.prepositions), a2 = pick(w.adjectives), n3 = pick(w.nouns);
    return fmt::format(" the {} {} {} the {} {} the {} {}.", a1, n1, v, n2, p, a2, n3);
  }
  if (kind < 0.85) {
    const std::string s = pick(w.subjects), v = pick(w.verbs), n = pick(w.nouns), a = pick(w.adverbs);
    return fmt::format(" {} {} the {} {}.", s, v, n, a);
  }
  const std::string n1 = pick(w.nouns), a1 = pick(w.adjectives), n2 = pick(w.nouns), a2 = pick(w.adjectives);
  return fmt::format(" the {} is {} and the {} is {}.", n1, a1, n2, a2);
}

Turn Author::filler_turn() {
  Turn turn;
  turn.opener = pick(words().openers);
  const auto sentences = rng_.between(1, 5);
  for (std::int64_t i = 0; i < sentences; ++i) turn.before.push_back(sentence());
  turn.reply = pick(words().replies);
  return turn;
}

// Sentences of random words (a form that the phantom's filler has too) that cost exactly `tokens`; a single token is
// " and".
std::vector<std::string> Author::exact_sentences(int tokens) {
  std::vector<std::string> sentences;
  while (tokens > 0) {
    if (tokens == 1) {
      sentences.insert(sentences.begin(), " and");
      break;
    }
    const int count = std::min(tokens - 1, kLongestExactSentence);
    std::string text;
    for (int i = 0; i < count; ++i) text += " " + pick(words().filler);
    sentences.push_back(text + ".");
    tokens -= count + 1;
  }
  return sentences;
}

std::vector<Turn> Author::filler(int tokens) {
  CHECK(tokens == 0 || tokens >= kMinFill);
  std::vector<Turn> turns;
  int left = tokens;
  while (left > 0) {
    Turn turn = filler_turn();
    const int cost = v4_tokens(v4_turn(turn, {}, false));
    if (cost > left) break;
    left -= cost;
    turns.push_back(std::move(turn));
  }
  if (left == 0) return turns;
  if (turns.empty()) {
    Turn turn;
    turn.opener = "so";
    turn.reply = "ok.";
    left -= v4_tokens(v4_turn(turn, {}, false));
    turns.push_back(std::move(turn));
  }
  Turn& first = turns.front();
  for (std::string& s : exact_sentences(left)) {
    if (s == " and" && !first.before.empty())
      first.before.front().insert(0, s);
    else
      first.before.push_back(std::move(s));
  }
  return turns;
}

std::string Author::value() {
  std::string text;
  do {
    text = kValueFormats[static_cast<std::size_t>(rng_.below(kValueFormats.size()))];
    for (char& c : text) {
      if (c == 'L')
        c = static_cast<char>('A' + rng_.below(26));
      else if (c == 'D')
        c = static_cast<char>('0' + rng_.below(10));
    }
  } while (!is_spelt(text));
  return text;
}

std::string Author::diverging_value(const std::string& value, std::size_t keep) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string other = value;
    bool changed = false;
    for (std::size_t i = keep; i < other.size(); ++i) {
      if (other[i] == '-') continue;
      const bool letter = other[i] >= 'A';
      const std::uint64_t count = letter ? 26 : 10;
      const char base = letter ? 'A' : '0';
      const auto shift = changed ? rng_.below(count) : 1 + rng_.below(count - 1);
      other[i] = static_cast<char>(base + (static_cast<std::uint64_t>(other[i] - base) + shift) % count);
      changed = true;
    }
    CHECK(changed);
    if (is_spelt(other)) return other;
  }
  CHECK(false);
  return {};
}

std::string Author::syllable() {
  const auto letter = [&](std::string_view of) { return of[static_cast<std::size_t>(rng_.below(of.size()))]; };
  std::string text{letter(kConsonants), letter(kVowels)};
  if (rng_.uniform() < 0.3) text += letter(kConsonants);
  return text;
}

std::string Author::key(const std::vector<Fact>& facts) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string key;
    if (!facts.empty() && rng_.uniform() < kNearRelative) {
      const std::string& known = facts[static_cast<std::size_t>(rng_.below(facts.size()))].key;
      const std::size_t shared = known.size() - static_cast<std::size_t>(rng_.between(1, 3));
      key = known.substr(0, std::max<std::size_t>(3, shared)) + syllable();
    } else {
      const auto syllables = rng_.between(2, 4);
      for (std::int64_t i = 0; i < syllables; ++i) key += syllable();
    }
    if (key.size() <= kLongestKey && is_spelt(key) &&
        std::none_of(facts.begin(), facts.end(), [&](const Fact& f) { return f.key == key; }))
      return key;
  }
  CHECK(false);
  return {};
}

Fact Author::fact(const std::vector<Fact>& facts) {
  Fact f{.attribute = pick(words().attributes), .key = key(facts), .value = value()};
  while (std::any_of(facts.begin(), facts.end(), [&](const Fact& g) { return f.value == g.value; })) f.value = value();
  return f;
}

Turn Author::statement(int fact, Tools tools) {
  Turn turn;
  turn.fact = fact;
  const double kind = rng_.uniform();
  turn.form = tools == Tools::with && kind < 0.2 ? Turn::Form::lookup
              : kind < 0.35                      ? Turn::Form::remember
              : kind < 0.5                       ? Turn::Form::is
              : kind < 0.65                      ? Turn::Form::has
              : kind < 0.8                       ? Turn::Form::gave
                                                 : Turn::Form::aside;
  if (turn.form == Turn::Form::aside) {
    turn.opener = pick(words().openers);
    turn.before.push_back(sentence());
    turn.after.push_back(sentence());
  }
  turn.reply = pick(words().replies);
  turn.key_mark = static_cast<int>(rng_.below(kMarks.size()));
  turn.value_mark = static_cast<int>(rng_.below(kMarks.size()));
  return turn;
}

Turn Author::question(int fact, Tools tools) {
  Turn turn;
  turn.fact = fact;
  const double kind = rng_.uniform();
  turn.form = tools == Tools::with && kind < 0.25 ? Turn::Form::use_tool
              : kind < 0.5                        ? Turn::Form::what_is
              : kind < 0.75                       ? Turn::Form::tell
                                                  : Turn::Form::need;
  turn.key_mark = static_cast<int>(rng_.below(kMarks.size()));
  return turn;
}

int Author::state_new_fact(Conversation& conversation, Tools tools) {
  Fact f = fact(conversation.facts);
  f.turn = static_cast<int>(conversation.turns.size());
  conversation.facts.push_back(std::move(f));
  const int index = static_cast<int>(conversation.facts.size()) - 1;
  conversation.turns.push_back(statement(index, tools));
  return index;
}

void Author::append(Conversation& conversation, std::vector<Turn> turns) {
  for (Turn& turn : turns) conversation.turns.push_back(std::move(turn));
}

}  // namespace plumb::investigator
