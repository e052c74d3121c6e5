#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/generator.h"
#include "server/generation.h"
#include "server/reply_form.h"
#include "server/reply_reader.h"
#include "server/token_texts.h"

namespace plumb::server {

/// 64 bits that no two calls of a process share.
std::uint64_t random_bits();

/// One choice of an answer while it is generated: its text so far, its log-probabilities, its end.
class Choice {
 public:
  /// `parser` is null for completions. The context and the plan outlive it.
  Choice(const GenerationContext& context, const GenerationPlan& plan, std::unique_ptr<ReplyParser> parser, int index);

  int index() const { return part_.index; }
  std::size_t prompt_index() const { return prompt_index_; }
  const std::vector<std::int32_t>& prompt() const { return plan_.prompts[prompt_index_]; }

  /// The part of the prompt that belongs to the answer: a forced call.
  std::vector<ReplyDelta> start(std::string_view answer_start);
  /// The text of the prompt, with its scores if there are any.
  std::vector<ReplyDelta> echo(const std::vector<TokenScore>* scores);
  /// What a token adds.
  std::vector<ReplyDelta> add(const TokenScore& token);
  /// The end: what was held back. Afterwards finish_reason is set.
  std::vector<ReplyDelta> end(Finish reason);

  /// Nothing that follows belongs to the answer.
  bool complete() const { return reader_.complete(); }

  /// Adds deltas to the part that a complete reply shows.
  void gather(const std::vector<ReplyDelta>& deltas);
  /// The id of a call that began.
  const std::string& call_id(const ReplyDelta& delta);

  /// The part, for what is not text; its log-probabilities and token ids start anew when they are taken.
  ChoicePart meta();
  void take_scores(ChoicePart& part);
  /// Tokens were scored since they were last taken.
  bool has_scores() const { return !completion_logprobs_.empty() || !chat_logprobs_.empty(); }
  ChoicePart& part() { return part_; }
  std::vector<std::int32_t>& token_ids() { return token_ids_; }

  std::int64_t generated() const { return generated_; }
  std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  bool is_chat() const { return plan_.form == GenerationPlan::Form::chat; }
  bool scores() const { return plan_.options.logprobs >= 0; }
  bool is_hidden(std::int32_t id) const;
  void warn(const char* kind);

  const GenerationContext& context_;
  const GenerationPlan& plan_;
  const std::vector<std::int32_t> never_;  // tokens that no answer of a chat has
  std::size_t prompt_index_;
  ReplyReader reader_;
  CompletionLogprobs completion_logprobs_;
  ChatLogprobs chat_logprobs_;
  ChoicePart part_;
  std::vector<std::string> call_ids_;
  std::vector<std::int32_t> token_ids_;  // generated; streamed: since the last event
  std::int64_t generated_ = 0, reasoning_tokens_ = 0;
  std::int32_t last_id_ = -1;
};

}  // namespace plumb::server
