#include "faults/check/questions.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.h"

namespace plumb::faults {
namespace {

// Words of the phantom's vocabulary, one token each. A few of each kind are enough: facts differ by their values.
constexpr std::array<std::string_view, 40> kAdjectives{
    "amber",   "ancient", "bitter", "blue",   "bronze", "clever", "cold",   "copper", "crimson", "dusty",
    "eager",   "emerald", "faded",  "fierce", "frozen", "gentle", "golden", "hidden", "hollow",  "icy",
    "jolly",   "lazy",    "lonely", "lucky",  "marble", "mellow", "misty",  "narrow", "noble",   "orange",
    "patient", "polar",   "quiet",  "rapid",  "rusty",  "sacred", "silver", "sleepy", "velvet",  "wooden"};
constexpr std::array<std::string_view, 48> kNouns{
    "anchor", "badger", "barn",    "beacon", "bridge", "bucket", "cabin",   "camel",  "candle", "castle",
    "clock",  "comet",  "crane",   "desert", "dragon", "engine", "falcon",  "ferry",  "forest", "garden",
    "hammer", "harbor", "heron",   "island", "kettle", "ladder", "lantern", "lemon",  "maple",  "meadow",
    "mirror", "needle", "orchard", "otter",  "palace", "pepper", "pilot",   "quarry", "raven",  "saddle",
    "salmon", "shield", "signal",  "temple", "tunnel", "violet", "walnut",  "willow"};
constexpr std::array<std::string_view, 20> kVerbs{
    "built",   "carried", "caught", "cleaned", "crossed", "found",   "gathered", "guarded", "lifted",  "moved",
    "noticed", "opened",  "packed", "painted", "pulled",  "reached", "saved",    "touched", "visited", "watched"};
constexpr std::array<std::string_view, 12> kPrepositions{"above",  "across", "after", "before",  "behind", "beside",
                                                         "beyond", "inside", "near",  "through", "under",  "with"};
constexpr std::array<std::string_view, 8> kAttributes{"code",   "password", "badge", "ticket",
                                                      "serial", "token",    "pin",   "label"};
// L a letter, D a digit. The phantom's "DDDD" is left out: one in 10,000 is too easily guessed.
constexpr std::array<std::string_view, 5> kValueFormats{"LD-DD-LL", "LLDD", "LD-LL-DD", "LLL-DD", "DL-LD"};

template <std::size_t N>
std::string_view pick(const std::array<std::string_view, N>& list, Rng& rng) {
  return list[static_cast<std::size_t>(rng.below(N))];
}

std::string new_value(Rng& rng) {
  std::string value(pick(kValueFormats, rng));
  for (char& c : value) {
    if (c == 'L')
      c = static_cast<char>('A' + rng.below(26));
    else if (c == 'D')
      c = static_cast<char>('0' + rng.below(10));
  }
  return value;
}

}  // namespace

Fact diverging(const Fact& fact, std::size_t keep) {
  Fact other = fact;
  while (keep < other.value.size() && other.value[keep] == '-') ++keep;
  CHECK(keep < other.value.size());
  char& c = other.value[keep];
  const char first = c >= 'A' ? 'A' : '0';
  const int choices = c >= 'A' ? 26 : 10;
  c = static_cast<char>(first + (c - first + choices / 2) % choices);
  return other;
}

Conversation chat_of(std::string_view text) {
  constexpr std::array<std::string_view, 3> kRoles{"user", "assistant", "tool"};
  constexpr std::string_view kEnd = "<eos>", kResult = "<result>", kResultEnd = "</result>";
  const auto begins = [&](std::size_t at) -> std::string_view {
    for (const std::string_view role : kRoles)
      if (text.substr(at).starts_with(fmt::format("<{}>", role))) return role;
    return {};
  };
  Conversation chat;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view role = begins(at);
    CHECK(!role.empty());
    at += role.size() + 2;
    std::size_t end = at;
    while (end < text.size() && begins(end).empty()) ++end;
    std::string_view content = text.substr(at, end - at);
    if (content.starts_with(kResult)) content.remove_prefix(kResult.size());
    if (content.ends_with(kResultEnd)) content.remove_suffix(kResultEnd.size());
    const bool open = role == "assistant" && !content.ends_with(kEnd);
    if (content.ends_with(kEnd)) content.remove_suffix(kEnd.size());
    at = end;
    if (!open) {
      chat.messages.push_back({.role = std::string(role), .content = std::string(content)});
    } else if (constexpr std::string_view kCall = "<call> "; content.starts_with(kCall)) {
      chat.tool_choice = ToolChoice::named;
      chat.tool_name = content.substr(kCall.size());
    }
  }
  return chat;
}

Dialogue::Dialogue(const Encoding& encoding, std::uint64_t seed) : encoding_(encoding), rng_(seed) {
  ids_.push_back(encoding.bos());
}

void Dialogue::append(std::string_view text) {
  text_ += text;
  const auto ids = encoding_.encode(text);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

Fact Dialogue::new_fact() {
  Fact fact;
  fact.attribute = pick(kAttributes, rng_);
  fact.adjective = pick(kAdjectives, rng_);
  fact.noun = pick(kNouns, rng_);
  fact.value = new_value(rng_);
  return fact;
}

std::string Dialogue::sentence() {
  const auto adjective = [&] { return pick(kAdjectives, rng_); };
  const auto noun = [&] { return pick(kNouns, rng_); };
  if (rng_.below(3) != 0) {
    const auto a = adjective(), n = noun(), v = pick(kVerbs, rng_), object = noun(), p = pick(kPrepositions, rng_);
    const auto b = adjective(), place = noun();
    return fmt::format(" the {} {} {} the {} {} the {} {}.", a, n, v, object, p, b, place);
  }
  const auto v = pick(kVerbs, rng_), p = pick(kPrepositions, rng_), n = noun(), w = pick(kVerbs, rng_);
  return fmt::format(" we {} {} the {} and they {} it.", v, p, n, w);
}

void Dialogue::fill(std::int64_t count) {
  CHECK(count == 0 || count >= kMinFill);
  const std::int64_t end = tokens() + count;
  constexpr std::int64_t kLongestTurn = 40;
  while (end - tokens() >= 2 * kLongestTurn)
    append("<user>" + sentence() + sentence() + "<assistant>" + sentence() + "<eos>");
  if (tokens() == end) return;
  // The last turn is stretched to the token: " and" is one.
  std::string last;
  const std::int64_t room = end - tokens();
  const auto cost = [&](const std::string& text) { return static_cast<std::int64_t>(encoding_.encode(text).size()); };
  const std::string frame = "<user>.<assistant> noted.<eos>";
  while (true) {
    std::string longer = last + sentence();
    if (cost(longer) + cost(frame) > room) break;
    last = std::move(longer);
  }
  std::string stretch;
  for (std::int64_t i = cost(last) + cost(frame); i < room; ++i) stretch += " and";
  append("<user>" + last + stretch + ".<assistant> noted.<eos>");
  CHECK(tokens() == end);
}

std::string Dialogue::statement(const Fact& f) {
  const std::string key = fmt::format("the {} of the {} {}", f.attribute, f.adjective, f.noun);
  switch (rng_.below(3)) {
    case 0:
      return fmt::format("<user> please remember that {} is {}.<assistant> noted.<eos>", key, f.value);
    case 1:
      return fmt::format("<user> the {} {} has {} {}.<assistant> ok.<eos>", f.adjective, f.noun, f.attribute, f.value);
    default:
      return fmt::format(
          "<assistant><call> lookup {} of the {} {}</call><eos><tool><result> {} is {}</result><assistant> done.<eos>",
          f.attribute, f.adjective, f.noun, key, f.value);
  }
}

std::int64_t Dialogue::state(const Fact& fact) {
  const std::string text = statement(fact);
  const std::size_t at = text.find(" " + fact.value);
  append(std::string_view(text).substr(0, at));
  const std::int64_t position = tokens() + 1;  // behind the space
  append(std::string_view(text).substr(at));
  return position;
}

void Dialogue::state_at(const Fact& fact, std::int64_t position) {
  const std::string text = statement(fact);
  const auto lead = encoding_.encode(std::string_view(text).substr(0, text.find(" " + fact.value) + 1));
  fill(position - tokens() - static_cast<std::int64_t>(lead.size()));
  append(text);
}

void Dialogue::begin_statement(const Fact& f, std::size_t characters) {
  append(fmt::format("<user> the {} {} has {} {}", f.adjective, f.noun, f.attribute, f.value.substr(0, characters)));
  after_cut_ = f.value.substr(characters) + ".<assistant> ok.<eos>";
}

void Dialogue::end_statement() { append(after_cut_); }

Question Dialogue::ask(const Fact& f) {
  const std::string key = fmt::format("the {} of the {} {}", f.attribute, f.adjective, f.noun);
  std::string_view end = "<eos>";
  after_answer_.clear();
  switch (rng_.below(4)) {
    case 0:
      append(fmt::format("<user> tell me the {} {} {} again.<assistant>", f.adjective, f.noun, f.attribute));
      break;
    case 1:
      append(fmt::format("<user> use the tool for {}.<assistant><call> check", key));
      end = "</call>";
      after_answer_ = "<eos><tool><result> ok</result>";
      break;
    default:
      append(fmt::format("<user> what is {}?<assistant>", key));
  }
  open_answer_ = encoding_.encode(fmt::format(" {}{}", f.value, end));
  end_ = fmt::format(" {}{}", f.value, end);
  return {text_, ids_, open_answer_};
}

void Dialogue::answer() {
  CHECK(!open_answer_.empty());
  append(end_);
  open_answer_.clear();
  append(after_answer_);
}

}  // namespace plumb::faults
