#include "server/choice.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/rng.h"

namespace plumb::server {
namespace {

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::uint64_t random_bits() {
  static const std::uint64_t base = [] {
    std::random_device device;
    return (std::uint64_t{device()} << 32) ^ device();
  }();
  static std::atomic<std::uint64_t> count{0};
  return mix64(base + count.fetch_add(1));
}

Choice::Choice(const GenerationContext& context, const GenerationPlan& plan, std::unique_ptr<ReplyParser> parser,
               int index)
    : context_(context),
      plan_(plan),
      never_(plan.form == GenerationPlan::Form::chat ? context.encoding.never_in_answers()
                                                     : std::vector<std::int32_t>()),
      prompt_index_(static_cast<std::size_t>(index / plan.options.n)),
      reader_(std::move(parser), plan.options.stop),
      completion_logprobs_(context.texts),
      chat_logprobs_(context.texts) {
  part_.index = index;
}

std::vector<ReplyDelta> Choice::start(std::string_view answer_start) {
  std::vector<ReplyDelta> deltas;
  reader_.push(answer_start, deltas);
  return deltas;
}

std::vector<ReplyDelta> Choice::echo(const std::vector<TokenScore>* scores) {
  std::string text;
  for (std::size_t i = 0; i < prompt().size(); ++i) {
    const std::int32_t id = prompt()[i];
    if (scores != nullptr && i == 0) completion_logprobs_.append_unscored(id, reader_.characters());
    if (scores != nullptr && i > 0) completion_logprobs_.append((*scores)[i - 1], reader_.characters());
    text += reader_.echo(context_.texts.bytes(id));
  }
  return {{.kind = ReplyDelta::Kind::content, .text = std::move(text), .call = 0}};
}

bool Choice::is_hidden(std::int32_t id) const {
  if (id == context_.encoding.eos() || contains(plan_.options.stop_token_ids, id) || contains(never_, id)) return true;
  // What the reader of a chat's answer needs stays.
  return plan_.options.skip_special_tokens && context_.encoding.is_special(id) &&
         !(is_chat() && context_.encoding.is_read_in_answers(id));
}

std::vector<ReplyDelta> Choice::add(const TokenScore& token) {
  ++generated_;
  if (reader_.in_reasoning()) ++reasoning_tokens_;
  last_id_ = token.id;
  token_ids_.push_back(token.id);
  if (scores() && is_chat()) chat_logprobs_.append(token);
  if (scores() && !is_chat()) completion_logprobs_.append(token, reader_.characters());
  if (contains(never_, token.id)) warn("unexpected_special_token");
  std::vector<ReplyDelta> deltas;
  if (!is_hidden(token.id)) reader_.push(context_.texts.bytes(token.id), deltas);
  return deltas;
}

std::vector<ReplyDelta> Choice::end(Finish reason) {
  const bool complete = reader_.complete();
  std::vector<ReplyDelta> deltas;
  reader_.finish(deltas);
  part_.finish_reason = complete || reason == Finish::stop ? "stop" : "length";
  if (part_.finish_reason == "stop" && reader_.has_calls() && !reader_.broken()) part_.finish_reason = "tool_calls";
  if (reader_.stopped())
    part_.stop_reason = json_quote(reader_.stop());
  else if (!complete && reason == Finish::stop && last_id_ != context_.encoding.eos())
    part_.stop_reason = fmt::format("{}", last_id_);
  for (const std::string& kind : reader_.warnings()) warn(kind.c_str());
  return deltas;
}

void Choice::warn(const char* kind) {
  if (std::find(part_.warnings.begin(), part_.warnings.end(), kind) != part_.warnings.end()) return;
  part_.warnings.emplace_back(kind);
  context_.metrics.answer_warning(kind);
}

const std::string& Choice::call_id(const ReplyDelta& delta) {
  while (call_ids_.size() <= delta.call)
    call_ids_.push_back(fmt::format("call_{:016x}{:08x}", random_bits(), random_bits() >> 32));
  return call_ids_[delta.call];
}

void Choice::gather(const std::vector<ReplyDelta>& deltas) {
  for (const ReplyDelta& delta : deltas) {
    switch (delta.kind) {
      case ReplyDelta::Kind::reasoning:
        part_.reasoning += delta.text;
        break;
      case ReplyDelta::Kind::content:
        part_.text += delta.text;
        break;
      case ReplyDelta::Kind::call:
        part_.calls.push_back({.id = call_id(delta), .name = delta.text, .arguments = {}});
        break;
      case ReplyDelta::Kind::arguments:
        CHECK(!part_.calls.empty());
        part_.calls.back().arguments += delta.text;
        break;
      case ReplyDelta::Kind::call_void:
        CHECK(!part_.calls.empty());
        part_.calls.pop_back();
        break;
    }
  }
}

ChoicePart Choice::meta() {
  ChoicePart part;
  part.index = part_.index;
  return part;
}

void Choice::take_scores(ChoicePart& part) {
  if (scores()) part.logprobs = is_chat() ? chat_logprobs_.take() : completion_logprobs_.take();
}

}  // namespace plumb::server
