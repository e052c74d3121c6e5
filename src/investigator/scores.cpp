#include "investigator/scores.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"
#include "investigator/prompts/v4_text.h"

namespace plumb::investigator {
namespace {

constexpr std::array kPathNames{"scored", "generated"};
constexpr std::array kStateNames{"cold", "hit"};
constexpr std::array kStatusNames{"measured", "not offered", "unanswered"};

struct Group {
  ScorePath path;
  int length;
  int count;
};
// About 1,000 tokens estimate D; the rest is for lengths, and for enough prompts to tell a launch from its floor.
constexpr std::array kGroups{Group{ScorePath::scored, 256, 4}, Group{ScorePath::scored, 512, 2},
                             Group{ScorePath::scored, 1024, 2}, Group{ScorePath::generated, 256, 4},
                             Group{ScorePath::generated, 512, 2}};
constexpr int kGeneratedTokens = 12;  // an answer and its end

// Facts, filler and answered questions, as the probes have them; the last question is open. The filler in front keeps
// it cold, as in the probes.
Conversation conversation_of(const ScoreItem& item, std::uint64_t seed) {
  constexpr int kTokensPerFact = 128;
  constexpr int kTokensOfTurns = 56;  // a statement and its answered question
  Rng rng(derive_seed(seed, fmt::format("fixed text {}/{}/{}", path_name(item.path), item.length, item.number)));
  Author author(rng);
  Conversation c;
  const int facts = std::max(1, item.length / kTokensPerFact);
  const int filler = std::max(Author::kMinFill, item.length / facts - kTokensOfTurns);
  for (int i = 0; i < facts; ++i) {
    author.append(c, author.filler(filler));
    author.state_new_fact(c, Author::Tools::without);
    c.turns.push_back(
        author.question(static_cast<int>(rng.below(static_cast<std::uint64_t>(i) + 1)), Author::Tools::without));
  }
  return c;
}

// One text for a server that completes any: scored as a whole, so that how it would render a chat does not matter.
std::string plain_text(const std::vector<Message>& messages) {
  std::string text;
  for (const Message& m : messages) text += fmt::format("{}: {}\n", m.role, m.content);
  return text;
}

template <std::size_t N>
std::optional<std::size_t> index_in(const std::array<const char*, N>& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) return std::nullopt;
  return static_cast<std::size_t>(it - names.begin());
}

}  // namespace

std::string_view path_name(ScorePath path) { return kPathNames[static_cast<std::size_t>(path)]; }
std::string_view state_name(CacheState state) { return kStateNames[static_cast<std::size_t>(state)]; }
std::string_view status_name(Scores::Status status) { return kStatusNames[static_cast<std::size_t>(status)]; }

Result<Scores::Status> parse_scores_status(std::string_view name) {
  const auto index = index_in(kStatusNames, name);
  if (!index) return error("'{}' is no status of scores", name);
  return static_cast<Scores::Status>(*index);
}

std::string name_of(const ScoreItem& item) {
  return fmt::format("{}/{}/{}/{}", path_name(item.path), state_name(item.state), item.length, item.number);
}

Result<ScoreItem> parse_score_item(std::string_view name) {
  for (const ScoreItem& item : score_items({}))
    if (name_of(item) == name) return item;
  return error("'{}' is no text that is scored", name);
}

std::vector<ScoreItem> score_items(const Shape& shape) {
  std::vector<ScoreItem> items;
  for (const Group& g : kGroups) {
    if (shape.max_len > 0 && g.length + kGeneratedTokens > shape.max_len) continue;
    for (int i = 0; i < g.count; ++i) {
      items.push_back({g.path, CacheState::cold, g.length, i});
      if (g.path == ScorePath::generated) items.push_back({g.path, CacheState::hit, g.length, i});
    }
  }
  return items;
}

ScoreAsk make_score_ask(const ScoreItem& item, std::uint64_t seed, Wording wording) {
  const Conversation c = conversation_of(item, seed);
  const std::string text = v4_text(c);
  ScoreAsk ask{.path = item.path, .prompt = {}, .messages = {}, .prompt_tokens = v4_tokens(text)};
  if (item.path == ScorePath::generated) ask.max_tokens = kGeneratedTokens;
  if (wording == Wording::v4)
    ask.prompt = text;
  else if (item.path == ScorePath::scored)
    ask.prompt = plain_text(plain_messages(c));
  else
    ask.messages = plain_messages(c);
  return ask;
}

}  // namespace plumb::investigator
