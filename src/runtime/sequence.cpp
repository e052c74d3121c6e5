#include "runtime/sequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plumb {
namespace {

std::span<const float> row_of(View<const float, 2> logits, std::int64_t i) {
  return {logits.row(i), static_cast<std::size_t>(logits.extent(1))};
}

}  // namespace

Sequence::Sequence(std::uint64_t number, GenerateRequest asked, std::shared_ptr<TokenSink> listener)
    : id(number), request(std::move(asked)), sink(std::move(listener)), key(request.settings.key()) {
  tokens = request.prompt;
  usage.prompt_tokens = prompt_tokens();
}

std::int64_t Sequence::longest_start() const {
  const std::int64_t longest = known_tokens() - 1;
  return scoring() ? std::min(longest, static_cast<std::int64_t>(prompt_scores_.size())) : longest;
}

std::optional<Finish> Sequence::take_logits(View<const float, 2> logits, std::vector<float>& scratch) {
  for (const float logit : logits.span())
    if (!std::isfinite(logit)) return Finish::failed;
  const std::int64_t length = pages.state.length;
  if (scoring()) score_prompt(logits);
  if (length < known_tokens()) return std::nullopt;
  if (scoring()) {
    scores_told_ = true;
    sink->on_prompt_scores(std::exchange(prompt_scores_, {}));
  }
  if (request.max_tokens == 0) return Finish::length;

  const auto last = row_of(logits, logits.extent(0) - 1);
  const std::int32_t token = draw(last, scratch);
  tokens.push_back(token);
  ++usage.completion_tokens;
  sink->on_token(score_token(last, token, request.top_logprobs, request.settings));
  if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) return Finish::stop;
  if (usage.completion_tokens >= request.max_tokens) return Finish::length;
  return std::nullopt;
}

// Row i of the logits belongs to position begin + i and scores the token behind it. A sequence that was preempted may
// compute positions again that are scored already.
void Sequence::score_prompt(View<const float, 2> logits) {
  const std::int64_t length = pages.state.length, begin = length - logits.extent(0);
  for (auto p = static_cast<std::int64_t>(prompt_scores_.size()); p < std::min(length, prompt_tokens() - 1); ++p)
    prompt_scores_.push_back(score_token(row_of(logits, p - begin), tokens[static_cast<std::size_t>(p) + 1],
                                         request.top_logprobs, request.settings));
}

std::int32_t Sequence::draw(std::span<const float> logits, std::vector<float>& scratch) {
  if (adjusts_logits(request.sampling)) {
    if (!seen_) seen_.emplace(request.prompt);
    scratch.assign(logits.begin(), logits.end());
    adjust_logits(scratch, request.sampling, *seen_);
    logits = scratch;
  }
  const std::int32_t token = sample_token(logits, request.sampling, pages.state.length, request.settings);
  if (seen_) seen_->add_generated(token);
  return token;
}

}  // namespace plumb
