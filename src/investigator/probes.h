#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "investigator/prompts/conversation.h"

namespace plumb::investigator {

/// One request of a trial. Completions wordings fill `prompt`, chat wordings `messages`.
struct Ask {
  std::string step;  // "" when the trial has one question; "cold", "full", "partial", "extend", "q1"...
  std::string prompt;
  std::vector<Message> messages;
  std::string expected;     // the exact answer; empty: not graded (a primer, or the repetition check)
  int asked = -1;           // index into facts
  std::vector<Fact> facts;  // everything planted in this conversation, to class wrong answers
  int max_tokens = 0;       // 0: the deployment's answer_tokens
  bool ignore_eos = false;
  bool wants_hit = false;  // a prefix-cache hit must show in cached_tokens, else the step is not covered
  int prompt_tokens = 0;   // by the phantom's tokenizer, or as dialled
  int boundary = 0;        // above 0: the expected value must lie across a multiple of so many tokens, by dialling
  int padding = 0;         // words that dialling put before the prompt
  std::string body{};      // a JSON object merged into the request last; empty: none
  std::string tool{};      // the tool whose arguments may hold the answer; empty: any
};

/// A trial is named by its cell (a probe at one length) and a seed; its requests follow from these alone.
struct ItemId {
  std::string cell;
  std::uint64_t seed = 0;
  // Seeds first: they tell nearly all apart.
  bool operator==(const ItemId& other) const { return seed == other.seed && cell == other.cell; }
};

struct Item {
  ItemId id;
  std::vector<Ask> asks;
};

class OperatorConversation;

/// What the probes aim at; 0 where the deployment file does not say.
struct Shape {
  int window = 0;
  int chunk = 0;
  int page = 0;
  int index_topk = 0;
  int max_len = 0;
  std::shared_ptr<const OperatorConversation> conversation{};  // null: the operator gave none
};

/// A question with an exact answer.
struct Probe {
  std::string_view name;
  std::string_view asks;         // the question in one line
  std::string_view sends;        // what is sent and what a right answer is, in one line
  std::string_view recall;       // what a failure breaks: "recall in later turns"
  std::string_view notices;      // what a user notices then, one sentence
  std::span<const int> lengths;  // prompt lengths in tokens; empty: the probe has its own
  bool weak = false;             // shown, never used for a verdict
  Item (*make)(const ItemId& id, int length, Wording wording, const Shape& shape);
};

/// All probes of this version, in the order they run in.
std::span<const Probe> probes();
/// The cells of a suite ("all" or a probe's name), for example "needle@512"; `lengths` replaces the probe's own when
/// not empty. Errors: unknown suite.
Result<std::vector<std::string>> cells_of(std::string_view suite, const std::vector<int>& lengths);
/// The probe of a cell. Errors: no such probe, a length that is no number or too short.
Result<const Probe*> probe_of(std::string_view cell);
/// Whether a cell's probe is shown, but never used for a verdict. The cell must be one that probe_of() knows.
bool is_weak(std::string_view cell);

/// The requests of a trial: a pure function of its arguments.
Item make_item(const ItemId& id, Wording wording, const Shape& shape);

/// A lower bound of the longest prompt of a cell's trials, known without making one.
int least_prompt_tokens(std::string_view cell, const Shape& shape);

/// The longest prompts that plumb makes.
inline constexpr int kMaxPromptTokens = 1 << 18;
inline constexpr int kRepetitionTokens = 256;

}  // namespace plumb::investigator
