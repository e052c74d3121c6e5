#include "investigator/prompts/conversation.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.h"
#include "investigator/prompts/words.h"

namespace plumb::investigator {
namespace {

constexpr std::array<std::string_view, 16> kMarkers{
    "<bos>",   "<eos>",    "<pad>",     "<user>",  "<assistant>", "<system>", "<tool>", "<call>",
    "</call>", "<result>", "</result>", "<think>", "</think>",    "<r13>",    "<r14>",  "<r15>"};

// L a letter, D a digit. The phantom's "DDDD" is left out: one in 10,000 is too easily guessed for a probe.
constexpr std::array<std::string_view, 5> kValueFormats{"LD-DD-LL", "LLDD", "LD-LL-DD", "LLL-DD", "DL-LD"};

constexpr double kSameThing = 0.12;    // another attribute of a thing that is already known
constexpr double kNearRelative = 0.3;  // shares its adjective or its noun with a known thing
constexpr int kFactAttempts = 1000;    // for a key that is still free; the key space is 8 * 110 * 190
constexpr int kLongestExactSentence = 9;

std::string join(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

std::string key_of(const Fact& f) { return fmt::format("the {} of the {} {}", f.attribute, f.adjective, f.noun); }

// " the amber falcon ..." -> "The amber falcon ..."
std::string as_sentence(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  std::string out(text);
  if (!out.empty() && out.front() >= 'a' && out.front() <= 'z')
    out.front() = static_cast<char>(out.front() - 'a' + 'A');
  return out;
}

std::string as_prose(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& s : sentences) out += (out.empty() ? "" : " ") + as_sentence(s);
  return out;
}

bool same_key(const Fact& a, const Fact& b) {
  return a.attribute == b.attribute && a.adjective == b.adjective && a.noun == b.noun;
}

}  // namespace

bool is_question(Turn::Form form) {
  return form == Turn::Form::what_is || form == Turn::Form::tell_again || form == Turn::Form::use_tool;
}

std::string_view wording_name(Wording wording) { return wording == Wording::phantom ? "phantom" : "plain"; }

std::string written_value(const Fact& fact, Wording wording) {
  if (wording == Wording::phantom) return fact.value;
  int sum = 0;
  for (const char c : fact.value) sum += static_cast<unsigned char>(c);
  return fmt::format("{}-{}", fact.value, sum % 10);
}

std::string phantom_turn(const Turn& turn, const std::vector<Fact>& facts, bool open) {
  using Form = Turn::Form;
  if (turn.form == Form::filler) return "<user>" + join(turn.before) + "<assistant>" + turn.reply + "<eos>";
  const Fact& f = facts.at(static_cast<std::size_t>(turn.fact));
  const std::string key = key_of(f);
  switch (turn.form) {
    case Form::remember:
      return fmt::format("<user> please remember that {} is {}.<assistant> noted.<eos>", key, f.value);
    case Form::has:
      return fmt::format("<user> the {} {} has {} {}.<assistant> ok.<eos>", f.adjective, f.noun, f.attribute, f.value);
    case Form::lookup:
      return fmt::format(
          "<assistant><call> lookup {} of the {} {}</call><eos><tool><result> {} is {}</result>"
          "<assistant> done.<eos>",
          f.attribute, f.adjective, f.noun, key, f.value);
    case Form::aside:
      return fmt::format("<user>{} {} is {}.{}<assistant> ok.<eos>", join(turn.before), key, f.value, join(turn.after));
    case Form::what_is:
      return fmt::format("<user> what is {}?<assistant>{}", key, open ? "" : " " + f.value + "<eos>");
    case Form::tell_again:
      return fmt::format("<user> tell me the {} {} {} again.<assistant>{}", f.adjective, f.noun, f.attribute,
                         open ? "" : " " + f.value + "<eos>");
    case Form::use_tool:
      return fmt::format("<user> use the tool for {}.<assistant><call> check{}", key,
                         open ? "" : " " + f.value + "</call><eos><tool><result> ok</result>");
    case Form::filler:
      break;
  }
  CHECK(false);
  return {};
}

std::string phantom_text(const Conversation& conversation) {
  std::string text = "<bos>";
  for (std::size_t i = 0; i < conversation.turns.size(); ++i)
    text += phantom_turn(conversation.turns[i], conversation.facts, i + 1 == conversation.turns.size());
  return text;
}

std::vector<Message> plain_messages(const Conversation& conversation) {
  using Form = Turn::Form;
  std::vector<Message> messages;
  for (std::size_t i = 0; i < conversation.turns.size(); ++i) {
    const Turn& turn = conversation.turns[i];
    if (turn.form == Form::filler) {
      messages.push_back({"user", as_prose(turn.before)});
      messages.push_back({"assistant", as_sentence(turn.reply)});
      continue;
    }
    const Fact& f = conversation.facts.at(static_cast<std::size_t>(turn.fact));
    const std::string value = written_value(f, Wording::plain);
    const std::string statement = fmt::format("The {} of the {} {} is {}.", f.attribute, f.adjective, f.noun, value);
    std::string said;
    std::string reply = "OK.";
    switch (turn.form) {
      case Form::remember:
        said = "Please remember this. " + statement;
        reply = "Noted.";
        break;
      case Form::has:
        said = fmt::format("The {} {} has the {} {}.", f.adjective, f.noun, f.attribute, value);
        break;
      case Form::lookup:
        said = "The lookup tool returned: " + statement;
        reply = "Noted.";
        break;
      case Form::aside:
        said = as_prose(turn.before) + " " + statement + " " + as_prose(turn.after);
        break;
      case Form::what_is:
      case Form::use_tool:
        said = fmt::format("What is the {} of the {} {}? Reply with the {} and nothing else.", f.attribute, f.adjective,
                           f.noun, f.attribute);
        reply = value;
        break;
      case Form::tell_again:
        said = fmt::format("Tell me the {} of the {} {} again. Reply with the {} and nothing else.", f.attribute,
                           f.adjective, f.noun, f.attribute);
        reply = value;
        break;
      case Form::filler:
        break;
    }
    messages.push_back({"user", said});
    if (!(is_question(turn.form) && i + 1 == conversation.turns.size())) messages.push_back({"assistant", reply});
  }
  return messages;
}

int phantom_tokens(std::string_view text) {
  int count = 0;
  while (!text.empty()) {
    std::size_t length = 1;
    const auto marker = std::find_if(kMarkers.begin(), kMarkers.end(),
                                     [&](std::string_view m) { return text.substr(0, m.size()) == m; });
    if (marker != kMarkers.end()) {
      length = marker->size();
      ++count;
    } else {
      std::size_t end = 1;
      if (text.front() == ' ')
        while (end < text.size() && text[end] >= 'a' && text[end] <= 'z') ++end;
      length = end;
      count += end > 1 && is_word(text.substr(1, end - 1)) ? 1 : static_cast<int>(end);
    }
    text.remove_prefix(length);
  }
  return count;
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
  if (kind < 0.7) {
    const std::string v1 = pick(w.verbs), p = pick(w.prepositions), n = pick(w.nouns), v2 = pick(w.verbs);
    return fmt::format(" we {} {} the {} and they {} it.", v1, p, n, v2);
  }
  if (kind < 0.85) {
    const std::string a = pick(w.adjectives), n1 = pick(w.nouns), p = pick(w.prepositions), n2 = pick(w.nouns);
    return fmt::format(" was the {} {} {} the {}?", a, n1, p, n2);
  }
  std::string text;
  const auto count = rng_.between(3, kLongestExactSentence);
  for (std::int64_t i = 0; i < count; ++i) text += " " + pick(w.all);
  return text + ".";
}

Turn Author::filler_turn() {
  Turn turn;
  const auto sentences = rng_.between(1, 3);
  for (std::int64_t i = 0; i < sentences; ++i) turn.before.push_back(sentence());
  turn.reply = sentence();
  return turn;
}

// Sentences of random words (a form the filler has anyway) that cost exactly `tokens`; a single token is " and".
std::vector<std::string> Author::exact_sentences(int tokens) {
  std::vector<std::string> sentences;
  while (tokens > 0) {
    if (tokens == 1) {
      sentences.insert(sentences.begin(), " and");
      break;
    }
    const int count = std::min(tokens - 1, kLongestExactSentence);
    std::string text;
    for (int i = 0; i < count; ++i) text += " " + pick(words().all);
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
    const int cost = phantom_tokens(phantom_turn(turn, {}, false));
    if (cost > left) break;
    left -= cost;
    turns.push_back(std::move(turn));
  }
  if (left == 0) return turns;
  if (turns.empty()) {
    Turn turn;
    turn.reply = " ok.";
    left -= phantom_tokens(phantom_turn(turn, {}, false));
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
  std::string text(kValueFormats[static_cast<std::size_t>(rng_.below(kValueFormats.size()))]);
  for (char& c : text) {
    if (c == 'L')
      c = static_cast<char>('A' + rng_.below(26));
    else if (c == 'D')
      c = static_cast<char>('0' + rng_.below(10));
  }
  return text;
}

std::string Author::diverging_value(const std::string& value, std::size_t keep) {
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
  return other;
}

Fact Author::fact(const std::vector<Fact>& facts) {
  const Words& w = words();
  for (int attempt = 0; attempt < kFactAttempts; ++attempt) {
    Fact f{.attribute = pick(w.attributes), .adjective = pick(w.adjectives), .noun = pick(w.nouns), .value = value()};
    if (!facts.empty()) {
      const Fact& known = facts[static_cast<std::size_t>(rng_.below(facts.size()))];
      const double kind = rng_.uniform();
      const bool keep_adjective = rng_.below(2) == 0;
      if (kind < kSameThing || (kind < kSameThing + kNearRelative && keep_adjective)) f.adjective = known.adjective;
      if (kind < kSameThing || (kind < kSameThing + kNearRelative && !keep_adjective)) f.noun = known.noun;
    }
    if (std::none_of(facts.begin(), facts.end(), [&](const Fact& g) { return same_key(f, g) || f.value == g.value; }))
      return f;
  }
  CHECK(false);
  return {};
}

Turn Author::statement(int fact) {
  Turn turn;
  turn.fact = fact;
  const double kind = rng_.uniform();
  turn.form = kind < 0.35  ? Turn::Form::remember
              : kind < 0.6 ? Turn::Form::has
              : kind < 0.8 ? Turn::Form::lookup
                           : Turn::Form::aside;
  if (turn.form == Turn::Form::aside) {
    turn.before.push_back(sentence());
    turn.after.push_back(sentence());
  }
  return turn;
}

Turn Author::question(int fact) {
  Turn turn;
  turn.fact = fact;
  const double kind = rng_.uniform();
  turn.form = kind < 0.5 ? Turn::Form::what_is : kind < 0.75 ? Turn::Form::tell_again : Turn::Form::use_tool;
  return turn;
}

int Author::state_new_fact(Conversation& conversation) {
  Fact f = fact(conversation.facts);
  f.turn = static_cast<int>(conversation.turns.size());
  conversation.facts.push_back(std::move(f));
  const int index = static_cast<int>(conversation.facts.size()) - 1;
  conversation.turns.push_back(statement(index));
  return index;
}

void Author::append(Conversation& conversation, std::vector<Turn> turns) {
  for (Turn& turn : turns) conversation.turns.push_back(std::move(turn));
}

}  // namespace plumb::investigator
