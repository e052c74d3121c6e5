#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "investigator/probes.h"

namespace plumb::investigator {

/// How the log-probabilities of a text are had: all tokens of a prompt in one pass (`echo` with `logprobs`; servers
/// bypass the prefix cache there), or those that come with greedily generated tokens (the decode path, and the only one
/// that a prefix-cache hit takes).
enum class ScorePath { scored, generated };
/// Whether the prompt is new to the server or was sent just before.
enum class CacheState { cold, hit };
std::string_view path_name(ScorePath path);
std::string_view state_name(CacheState state);

/// One text whose log-probabilities are asked for, at one path and in one cache state.
struct ScoreItem {
  ScorePath path = ScorePath::scored;
  CacheState state = CacheState::cold;
  int length = 0;  // tokens of the prompt, by the phantom's rule
  int number = 0;  // of the texts of this path and length
  bool operator==(const ScoreItem&) const = default;
};
/// "generated/hit/256/0": stable, for journals.
std::string name_of(const ScoreItem& item);
Result<ScoreItem> parse_score_item(std::string_view name);

/// The fixed texts of a launch, in the order they are asked in: lengths as the probes have them, cold ones scored and
/// generated, and each generated one again as a hit. Texts longer than `shape` allows are left out.
std::vector<ScoreItem> score_items(const Shape& shape);

/// The request of an item: its text is a function of the case's seed, so that all launches of a case get the same ones
/// and none has seen them before.
struct ScoreAsk {
  ScorePath path = ScorePath::scored;
  std::string prompt;             // of the phantom's wording, and of every scored text
  std::vector<Message> messages;  // of the plain wording, generated
  int prompt_tokens = 0;          // by the phantom's rule
  int max_tokens = 1;
};
ScoreAsk make_score_ask(const ScoreItem& item, std::uint64_t seed, Wording wording);

/// A generated token, or one of those that the server lists beside it.
struct ListedToken {
  std::string text;
  double log_probability = 0;  // natural
  bool operator==(const ListedToken&) const = default;
};
struct GeneratedToken {
  ListedToken chosen;
  std::vector<ListedToken> list;  // the most probable ones, as the server lists them
  bool operator==(const GeneratedToken&) const = default;
};

/// What came back for one request.
struct Scores {
  enum class Status {
    measured,
    not_offered,  // the server answers, without log-probabilities
    unanswered    // no reply: says nothing
  } status = Status::unanswered;
  std::string message;                    // why nothing was measured
  std::string tokens_hash;                // scored: of the tokens' texts
  std::vector<double> log_probabilities;  // scored: of each prompt token after the first, given those before it
  std::vector<GeneratedToken> generated;
  std::optional<int> prompt_tokens;
  std::optional<int> cached_tokens;
  double seconds = 0;
};
std::string_view status_name(Scores::Status status);
Result<Scores::Status> parse_scores_status(std::string_view name);

/// A fixed text on one launch.
struct ScoreRecord {
  ScoreItem item;
  Wording wording = Wording::v4;
  std::string prompt_hash;  // xxh3, 128 bits, hex
  int expected_tokens = 0;  // of the prompt, by the phantom's rule
  Scores scores;
  double at_s = 0;  // since the investigation began

  std::int64_t tokens() const { return scores.prompt_tokens.value_or(expected_tokens); }
};

/// Log-probabilities below this are taken for it: servers write -9999 or null for "impossible".
inline constexpr double kLeastLogProbability = -50;

/// Reads a reply's log-probabilities, in OpenAI's form for completions (token_logprobs, top_logprobs) or for chats
/// (content). Of a scored text the generated tokens at the end (`usage`, else one) are dropped.
Scores parse_scores(int status, const std::string& body, ScorePath path);

}  // namespace plumb::investigator
