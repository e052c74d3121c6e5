#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "faults/check/measure.h"
#include "faults/check/task_questions.h"

namespace plumb::faults {

/// A reply to a question of a task. `logprobs[i]`: of every id of the vocabulary, where token i of the answer was
/// drawn; up to and with the first token that is not the expected one.
struct TaskReply {
  bool right = false;
  bool no_answer = false;  // empty, not ended within kSpareTokens more than the answer has, or no finite logits
  std::vector<std::vector<float>> logprobs;
  std::uint64_t digest = 0;  // of ids and log-probabilities
};
inline constexpr std::int64_t kSpareTokens = 16;

/// What came of one conversation: its questions in order, and the last one asked again.
struct Trial {
  std::vector<TaskReply> replies;
  double decode_gap = -1;  // largest |difference| of a reply's log-probabilities, decoded and scored; -1: not measured

  bool right() const;
  bool no_answer() const;
};

/// The conversations of a group as a busy server gets them: each asked turn by turn through the chat form, the first
/// questions of all together, then the second ones and so on, and at last everyone's last question again; fewer run at
/// a time than wait, and pages for all of them do not fit. `score`: also the decode gap, of the last question.
std::vector<Trial> ask_group(const Subject& subject, const Variant& variant,
                             std::span<const TaskConversation> conversations, bool score);

/// The expected ids' log-probabilities in a reply, and whether it is right.
Answer graded_answer(const Question& question, const TaskReply& reply);

/// A trial with a fault beside the same one without. Positions that both have are compared.
struct TrialDifference {
  int lost = 0, won = 0;                      // exactly right without the fault alone, with it alone
  int answers_missing = 0, answers_more = 0;  // a trial with a question that got no answer, with the fault alone and
                                              // without it alone
  double nats = 0;                            // by how much less likely the right answers became, sum
  double d = 0;                               // ½ · mean of (Δ log-probability of the expected id)²
  double kl = 0;                              // mean of Σ p·log(p/q) over the vocabulary, q with the fault
  double decode_gap = -1;                     // with the fault
  bool differs = false;                       // any bit of any reply
};
TrialDifference difference_of(const Trial& honest, const Trial& planted, std::span<const Question> questions);

}  // namespace plumb::faults
