#include "investigator/probes.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/ranges.h>

#include "base/check.h"
#include "investigator/operator_conversation.h"
#include "investigator/prompts/v4_text.h"

namespace plumb::investigator {
namespace {

constexpr int kDefaultWindow = 128;  // DeepSeek-V4's window; a deployment file may state another
constexpr int kDefaultPage = 128;
constexpr std::array kDefaultChunks{256, 512};
constexpr std::array kNeedleLengths{256, 512, 1024};
constexpr int kTokensPerFact = 128;  // needle: one planted fact for each so many tokens, one of them asked
constexpr int kMinLength = 128;      // holds the longest statement and question with filler
constexpr int kMostBoundary = 512;   // longer prompts would cost more than the hit probe is worth
constexpr int kValueAttempts = 64;
constexpr std::size_t kDialledValue = 8;  // characters: the longer a code, the fewer prompts dialling needs
constexpr int kUndialledPart = 60;        // per cent of a dialled prompt's way to the boundary
constexpr int kTurnsRounds = 4;
constexpr int kShared = 3;  // characters of a value that the two prompts of a partial hit share

int window_of(const Shape& shape) { return shape.window > 0 ? shape.window : kDefaultWindow; }

// Filler that follows a fact to take it out of the window, and to give an indexer that keeps the top entries (one for
// four tokens) enough newer ones to choose from.
int distance_of(const Shape& shape) {
  constexpr int kTokensPerEntry = 4;
  constexpr int kMargin = 32;
  constexpr int kMost = 1024;
  return std::min(kMost, std::max(2 * window_of(shape), kTokensPerEntry * shape.index_topk)) + kMargin;
}

// Fills in what a request looks like in the wording; everything up to the last turn, a question, is the prompt.
Ask ask_of(const Conversation& c, Wording wording, std::string step) {
  CHECK(is_question(c.turns.back().form));
  Ask ask;
  ask.step = std::move(step);
  ask.asked = c.turns.back().fact;
  ask.expected = written_value(c.facts[static_cast<std::size_t>(ask.asked)], wording);
  ask.facts = c.facts;
  for (Fact& f : ask.facts) f.value = written_value(f, wording);
  const std::string text = v4_text(c);
  ask.prompt_tokens = v4_tokens(text);
  if (wording == Wording::v4)
    ask.prompt = text;
  else
    ask.messages = plain_messages(c);
  return ask;
}

// A request that ends inside the statement of `fact`, `keep` characters into its value: it leaves its state behind for
// the real one that continues it.
Ask primer_of(const Conversation& c, int fact, std::size_t keep, Wording wording) {
  Ask ask;
  ask.step = "prime";
  ask.max_tokens = 1;
  const std::string value = c.facts[static_cast<std::size_t>(fact)].value;
  const std::string text = v4_text(c);
  const std::string cut = text.substr(0, text.find(value) + keep);
  ask.prompt_tokens = v4_tokens(cut);
  if (wording == Wording::v4) {
    ask.prompt = cut;
    return ask;
  }
  for (Message& m : plain_messages(c)) {
    const std::size_t at = m.content.find(value);
    if (at != std::string::npos) m.content.resize(at + keep);
    ask.messages.push_back(std::move(m));
    if (at != std::string::npos) break;
  }
  return ask;
}

Item make_short(const ItemId& id, int, Wording wording, const Shape&) {
  Rng rng(derive_seed(id.seed, id.cell));
  Author author(rng);
  Conversation c;
  const int fact = author.state_new_fact(c, Author::Tools::without);
  c.turns.push_back(author.question(fact, Author::Tools::without));
  return {id, {ask_of(c, wording, "")}};
}

Item make_needle(const ItemId& id, int length, Wording wording, const Shape&) {
  Rng rng(derive_seed(id.seed, id.cell));
  Author author(rng);
  Conversation c;
  std::vector<Turn> statements;
  const int count = std::max(1, length / kTokensPerFact);
  int room = length - 1;  // the begin of sentence
  for (int i = 0; i < count; ++i) {
    c.facts.push_back(author.fact(c.facts));
    statements.push_back(author.statement(i, Author::Tools::without));
    room -= v4_tokens(v4_turn(statements.back(), c.facts, false));
  }
  const auto asked = static_cast<int>(rng.below(static_cast<std::uint64_t>(count)));
  const Turn question = author.question(asked, Author::Tools::without);
  room -= v4_tokens(v4_turn(question, c.facts, true));
  CHECK(room >= Author::kMinFill);
  const std::vector<Turn> filler = author.filler(room);
  // A filler turn always comes first: it stands for the random first line that keeps the prompt cold.
  std::vector<std::uint64_t> places;
  for (int i = 0; i < count; ++i) places.push_back(1 + rng.below(filler.size()));
  std::sort(places.begin(), places.end());
  std::size_t next = 0;
  for (std::size_t i = 0; i <= filler.size(); ++i) {
    for (; next < places.size() && places[next] == i; ++next) {
      c.facts[next].turn = static_cast<int>(c.turns.size());
      c.turns.push_back(statements[next]);
    }
    if (i < filler.size()) c.turns.push_back(filler[i]);
  }
  c.turns.push_back(question);
  return {id, {ask_of(c, wording, "")}};
}

// Filler, a fact of whose value `before` tokens, but not all, lie ahead of position `boundary`, filler that takes the
// fact out of the window, a question. Nothing else is planted.
struct Straddle {
  Conversation conversation;
  int fact = 0;
};
Straddle straddling(Author& author, int boundary, int before, int after_tokens, std::size_t least_value = 0) {
  Straddle s;
  Conversation& c = s.conversation;
  c.facts.push_back(author.fact({}));
  for (int i = 0; i < kValueAttempts && c.facts[0].value.size() < least_value; ++i) c.facts[0].value = author.value();
  before = std::min(before, static_cast<int>(c.facts[0].value.size()) - 1);
  const Turn statement = author.statement(0, Author::Tools::without);
  const std::string text = v4_turn(statement, c.facts, false);
  const int lead = v4_tokens(std::string_view(text).substr(0, text.find(c.facts[0].value)));
  author.append(c, author.filler(boundary - before - lead - 1));
  c.facts[0].turn = static_cast<int>(c.turns.size());
  c.turns.push_back(statement);
  author.append(c, author.filler(after_tokens));
  c.turns.push_back(author.question(0, Author::Tools::without));
  return s;
}

Item make_boundary(const ItemId& id, int, Wording wording, const Shape& shape) {
  Rng rng(derive_seed(id.seed, id.cell));
  Author author(rng);
  int boundary = shape.chunk;
  if (boundary <= 0) boundary = kDefaultChunks[static_cast<std::size_t>(rng.below(kDefaultChunks.size()))];
  while (boundary < kMinLength) boundary += shape.chunk;
  const int before = static_cast<int>(rng.between(1, 7));
  if (wording == Wording::v4) {
    const Straddle s = straddling(author, boundary, before, distance_of(shape));
    return {id, {ask_of(s.conversation, wording, "")}};
  }
  // Where tokens are the server's own, most of the way is filler and the rest is dialled (dial.h).
  const Straddle s = straddling(author, std::max(boundary * kUndialledPart / 100, kMinLength), before,
                                distance_of(shape), kDialledValue);
  Item item{id, {ask_of(s.conversation, wording, "")}};
  item.asks.front().boundary = boundary;
  return item;
}

Item make_turns(const ItemId& id, int, Wording wording, const Shape& shape) {
  Rng rng(derive_seed(id.seed, id.cell));
  Author author(rng);
  Item item{id, {}};
  Conversation c;
  author.append(c, author.filler(static_cast<int>(rng.between(Author::kMinFill, 40))));
  for (int round = 0; round < kTurnsRounds; ++round) {
    // The statement follows the last answer directly: what a server keeps of the end of a request is used here.
    author.state_new_fact(c, Author::Tools::with);
    if (rng.below(2) == 0) author.state_new_fact(c, Author::Tools::with);
    author.append(c, author.filler(window_of(shape) + static_cast<int>(rng.between(8, 24))));
    // Half the questions ask for the latest statement, the others for any earlier one.
    const auto newest = static_cast<int>(c.facts.size()) - 1;
    const int fact = rng.below(2) == 0 ? newest : static_cast<int>(rng.between(0, newest));
    c.turns.push_back(author.question(fact, Author::Tools::with));
    item.asks.push_back(ask_of(c, wording, fmt::format("q{}", round + 1)));
    item.asks.back().wants_hit = round > 0;
  }
  return item;
}

Item make_hit(const ItemId& id, int, Wording wording, const Shape& shape) {
  Rng rng(derive_seed(id.seed, id.cell));
  Author author(rng);
  const int page = shape.page > 0 ? shape.page : kDefaultPage;
  // A state is kept where a forward pass ends at the end of a page: with chunked prefill not before the first chunk
  // ends.
  int boundary = page;
  while (boundary < kMinLength || boundary < std::min(shape.chunk, kMostBoundary)) boundary += page;
  const int after = distance_of(shape) + static_cast<int>(rng.between(0, 23));
  // The page boundary lies inside the value, so that a state cut there must carry both halves.
  Straddle s = straddling(author, boundary, static_cast<int>(rng.between(1, kShared)), after);
  Item item{id, {ask_of(s.conversation, wording, "cold"), ask_of(s.conversation, wording, "full")}};
  Conversation fork = s.conversation;
  fork.facts[0].value = author.diverging_value(fork.facts[0].value, kShared);
  item.asks.push_back(ask_of(fork, wording, "partial"));
  // A request that ends anywhere inside a value, and another one that goes on from there.
  const Straddle t = straddling(author, static_cast<int>(rng.between(kMinLength, kMinLength + page)), 2, after);
  const std::size_t keep = 1 + rng.below(t.conversation.facts[0].value.size() - 1);
  item.asks.push_back(primer_of(t.conversation, 0, keep, wording));
  item.asks.push_back(ask_of(t.conversation, wording, "extend"));
  for (Ask& ask : item.asks) ask.wants_hit = ask.step == "full" || ask.step == "partial" || ask.step == "extend";
  return item;
}

Item make_repetition(const ItemId& id, int, Wording wording, const Shape&) {
  Rng rng(derive_seed(id.seed, id.cell));
  Author author(rng);
  Conversation c;
  c.turns.push_back(author.filler_turn());
  constexpr std::string_view kOpen = "<｜Assistant｜></think>";
  Ask ask;
  ask.max_tokens = kRepetitionTokens;
  ask.ignore_eos = true;
  const std::string text = v4_text(c);
  const std::string open = text.substr(0, text.find(kOpen) + kOpen.size());
  ask.prompt_tokens = v4_tokens(open);
  if (wording == Wording::v4)
    ask.prompt = open;
  else
    ask.messages = {plain_messages(c).front()};
  return {id, {ask}};
}

constexpr std::array kProbes{
    Probe{.name = "short",
          .asks = "Is a fact readable that was stated a moment ago?",
          .sends = "one statement of a code and the question for it, about 60 tokens",
          .recall = "recall of what was just said",
          .notices = "The model does not know what it was told a moment ago.",
          .lengths = {},
          .weak = false,
          .make = &make_short},
    Probe{.name = "needle",
          .asks = "Is one fact still readable at this context length?",
          .sends = "a prompt of N tokens: filler with one code in each 128 tokens, one of them asked for",
          .recall = "recall in long prompts",
          .notices = "A fact from somewhere in a long prompt comes back wrong, or not at all; the replies look fluent.",
          .lengths = kNeedleLengths,
          .weak = false,
          .make = &make_needle},
    Probe{.name = "boundary",
          .asks = "Is a fact readable whose value lies across a prefill chunk boundary?",
          .sends = "filler placed so that a chunk ends inside the code, filler beyond the window, the question",
          .recall = "recall across prefill chunks",
          .notices = "Single facts of a prompt come back garbled, always those at certain positions.",
          .lengths = {},
          .weak = false,
          .make = &make_boundary},
    Probe{.name = "turns",
          .asks = "Are facts of earlier turns, tool results included, still known later?",
          .sends = "one conversation of four questions, codes stated in between, each question a request of its own",
          .recall = "recall in later turns",
          .notices = "What was said in earlier turns of a conversation comes back wrong, or not at all; the replies "
                     "look fluent.",
          .lengths = {},
          .weak = false,
          .make = &make_turns},
    Probe{.name = "hit",
          .asks = "Is a prompt answered alike from the prefix cache and without it?",
          .sends = "one prompt cold, again (full), with another end of the code (partial), and one begun by a request "
                   "that stops inside a code (extend)",
          .recall = "recall on prefix-cache hits",
          .notices = "A prompt that was answered right is answered wrong when it, or one that begins alike, is sent "
                     "again.",
          .lengths = {},
          .weak = false,
          .make = &make_hit},
    Probe{.name = kConversationCell,
          .asks = "Is a fact still known in the operator's own conversation?",
          .sends = "the conversation of --conversation as it is (not graded), and with a code planted in one of its "
                   "turns and asked for at its end",
          .recall = "recall in the operator's own conversation",
          .notices = "What was said in this conversation is not known at its end.",
          .lengths = {},
          .weak = false,
          .make = &make_conversation},
    Probe{.name = "repetition",
          .asks = "Does greedy text compress no better than the reference's? (weak)",
          .sends = "one short prompt, 256 tokens of free text; its gzip size is compared, nothing is right or wrong",
          .recall = "free text",
          .notices = "The model repeats itself.",
          .lengths = {},
          .weak = true,
          .make = &make_repetition},
};

struct ParsedCell {
  const Probe* probe;
  int length;
};
Result<ParsedCell> parse_cell(std::string_view cell) {
  const std::size_t at = cell.find('@');
  const std::string_view name = cell.substr(0, at);
  for (const Probe& probe : kProbes) {
    if (probe.name != name) continue;
    if (at == std::string_view::npos && probe.lengths.empty()) return ParsedCell{&probe, 0};
    if (at == std::string_view::npos || probe.lengths.empty())
      return error("probe cell '{}': {}", cell, probe.lengths.empty() ? "takes no length" : "needs @LENGTH");
    int length = 0;
    const auto [rest, code] = std::from_chars(cell.data() + at + 1, cell.data() + cell.size(), length);
    if (code != std::errc{} || rest != cell.data() + cell.size() || length < kMinLength || length > kMaxPromptTokens)
      return error("probe cell '{}': the length must be a number of tokens from {} to {}", cell, kMinLength,
                   kMaxPromptTokens);
    return ParsedCell{&probe, length};
  }
  return error("unknown probe '{}'", name);
}

}  // namespace

std::span<const Probe> probes() { return kProbes; }

Result<std::vector<std::string>> cells_of(std::string_view suite, const std::vector<int>& lengths) {
  std::vector<std::string> cells;
  std::vector<std::string_view> known{"all"};
  for (const Probe& probe : kProbes) {
    if (probe.name == kConversationCell) continue;  // only where a conversation is given
    known.push_back(probe.name);
    if (suite != "all" && suite != probe.name) continue;
    if (probe.lengths.empty()) cells.emplace_back(probe.name);
    std::vector<int> chosen(probe.lengths.begin(), probe.lengths.end());
    if (!lengths.empty() && !chosen.empty()) chosen = lengths;
    for (const int length : chosen) cells.push_back(fmt::format("{}@{}", probe.name, length));
  }
  if (cells.empty()) return error("unknown probe suite '{}'; there are: {}", suite, fmt::join(known, ", "));
  for (const std::string& cell : cells)
    if (const auto parsed = parse_cell(cell); !parsed) return tl::unexpected(parsed.error());
  return cells;
}

Result<const Probe*> probe_of(std::string_view cell) {
  const auto parsed = parse_cell(cell);
  if (!parsed) return tl::unexpected(parsed.error());
  return parsed->probe;
}

bool is_weak(std::string_view cell) {
  const auto probe = probe_of(cell);
  CHECK(probe.has_value());
  return (*probe)->weak;
}

int least_prompt_tokens(std::string_view cell, const Shape& shape) {
  const auto parsed = parse_cell(cell);
  CHECK(parsed.has_value());
  if (parsed->probe->name == "boundary") return shape.chunk;
  if (parsed->probe->name == "turns") return kTurnsRounds * window_of(shape);
  if (parsed->probe->name == "hit") return shape.page;
  return parsed->length;
}

Item make_item(const ItemId& id, Wording wording, const Shape& shape) {
  const auto parsed = parse_cell(id.cell);
  CHECK(parsed.has_value());
  return parsed->probe->make(id, parsed->length, wording, shape);
}

}  // namespace plumb::investigator
