#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/view.h"
#include "engine/engine.h"
#include "runtime/generator.h"
#include "runtime/sampler.h"
#include "runtime/steps.h"

namespace plumb {

/// A request on its way from the queue to its last token: what is known of it, its state, and the pages that hold it.
struct Sequence {
  Sequence(std::uint64_t number, GenerateRequest asked, std::shared_ptr<TokenSink> listener);

  std::uint64_t id;  // ascending in order of arrival: the smaller, the older
  GenerateRequest request;
  std::shared_ptr<TokenSink> sink;
  std::string key;                   // of the prefix cache
  std::vector<std::int32_t> tokens;  // prompt, then what was generated
  Usage usage;
  bool done = false;                 // on_finish was called
  std::uint64_t refused_at = 0;      // Scheduler::releases_ when there was no room for it; 0: not tried
  bool preempted = false;            // it waits to resume
  std::int64_t computed_before = 0;  // positions it had computed when it was preempted

  // While it is running.
  SequencePages pages;
  std::int64_t prefill_end = 0;         // tokens known at the start or when it resumed; decoding begins behind them
  std::int64_t window_reserved = 0;     // window pages set aside for it
  std::uint64_t last_pass = 0;          // the last pass it took part in, or that had been computed when it started
  std::int64_t next_tokens = 0;         // in the pass that is planned
  std::vector<OpenSnapshot> snapshots;  // page borders inside that pass, and the open part there
  std::vector<std::vector<float>> snapshot_open;

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
  std::int64_t known_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  bool prefilling() const { return pages.state.length < prefill_end; }
  /// True while logits of prompt positions are still to be scored.
  bool scoring() const { return request.prompt_logprobs && !scores_told_; }
  /// Positions that a stored prefix may cover: the next token needs the logits of the last known one, and a prompt that
  /// is being scored those of every position not yet scored.
  std::int64_t longest_start() const;

  /// Takes the logits of the pass that ended at pages.state.length: scores the prompt, and when every known token is
  /// computed draws the next one and tells the sink. Gives the reason when the sequence ends there.
  /// logits [rows, vocab]: of every token of the pass while scoring, else of its last one.
  /// `scratch` is working memory of one row.
  std::optional<Finish> take_logits(View<const float, 2> logits, std::vector<float>& scratch);

 private:
  void score_prompt(View<const float, 2> logits);
  std::int32_t draw(std::span<const float> logits, std::vector<float>& scratch);

  std::vector<TokenScore> prompt_scores_;
  bool scores_told_ = false;
  std::optional<SeenTokens> seen_;  // when the request's sampling adjusts logits
};

}  // namespace plumb
