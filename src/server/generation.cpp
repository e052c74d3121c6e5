#include "server/generation.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/check.h"
#include "base/rng.h"
#include "server/choice.h"
#include "server/reply_form.h"
#include "server/sequence_sink.h"

namespace plumb::server {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

ApiError server_error(int status, std::string message, std::string code) {
  return {
      .status = status, .type = "server_error", .message = std::move(message), .param = "", .code = std::move(code)};
}

ApiError model_error() {
  return server_error(500, "the model gave logits that are not finite; its weights or config are damaged",
                      "model_failure");
}

ApiError stopping_error() { return server_error(503, "the server is stopping", "stopping"); }

}  // namespace

// One request for tokens from submission to the end of its answer. Everything runs on the exchange's strand, except
// cancel_for_stop and detach.
class Generation final : public SequenceListener, public Stoppable, public std::enable_shared_from_this<Generation> {
 public:
  Generation(const GenerationContext& context, GenerationPlan plan, std::shared_ptr<Exchange> exchange);

  void start();
  void on_prompt_scores(std::size_t index, const std::vector<TokenScore>& scores) override;
  void on_token(std::size_t index, const TokenScore& token) override;
  void on_finish(std::size_t index, Finish reason, Usage usage) override;

  void cancel_for_stop() override;
  void detach() override;

 private:
  struct Sequence {
    Choice choice;
    std::uint64_t id = 0;
    bool submitted = false;
    bool stopped = false;  // the answer is complete; what follows is not wanted
    bool finished = false;
    Clock::time_point last_token_at{};
    Usage usage{};
  };

  bool streams() const { return plan_.options.stream; }
  bool chat() const { return plan_.form == GenerationPlan::Form::chat; }
  bool scores() const { return plan_.options.logprobs >= 0; }

  GenerateRequest make_request(const Sequence& s) const;
  std::optional<ApiError> submit_all();
  void begin_answer();
  void count_token(Sequence& s, std::int32_t id);
  void show(Sequence& s, std::vector<ReplyDelta> deltas);
  void send(Sequence& s, const std::vector<ReplyDelta>& deltas);
  void end_sequence(Sequence& s, Finish reason);
  void end_answer();
  void fail(const ApiError& error);
  void cancel_all();
  void keep_alive();
  void release();
  ReplyUsage total_usage() const;
  std::optional<ReplyUsage> usage_so_far() const;

  const GenerationContext& context_;
  GenerationPlan plan_;
  ReplyHead head_;
  std::shared_ptr<Exchange> exchange_;
  std::deque<Sequence> sequences_;
  std::size_t unfinished_ = 0;
  bool answered_ = false;     // nothing more goes to the client
  bool header_sent_ = false;  // of a stream: errors become events
  bool token_seen_ = false;

  std::mutex sinks_mutex_;
  std::vector<std::shared_ptr<SequenceSink>> sinks_;
};

Generation::Generation(const GenerationContext& context, GenerationPlan plan, std::shared_ptr<Exchange> exchange)
    : context_(context), plan_(std::move(plan)), exchange_(std::move(exchange)) {
  head_ = {
      .chat = chat(),
      .id = fmt::format("{}{:016x}{:08x}", chat() ? "chatcmpl-" : "cmpl-", random_bits(), random_bits() >> 32),
      .model = context_.model,
      .created =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .effort = plan_.chat.effort,
      .warnings = plan_.chat.warnings,
      .usage_at_end = plan_.options.stream && plan_.options.include_usage};
  if (!plan_.options.seed_given) plan_.options.sampling.seed = random_bits();
  const int count = static_cast<int>(plan_.prompts.size()) * plan_.options.n;
  CHECK(!chat() || plan_.chat.parsers.size() == static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    sequences_.push_back(
        {Choice(context_, plan_, chat() ? std::move(plan_.chat.parsers[static_cast<std::size_t>(i)]) : nullptr, i)});
}

GenerateRequest Generation::make_request(const Sequence& s) const {
  const GenerationOptions& options = plan_.options;
  GenerateRequest request{.prompt = s.choice.prompt(),
                          .max_tokens = *options.max_tokens,
                          .sampling = options.sampling,
                          .stop_ids = options.stop_token_ids,
                          .top_logprobs = options.logprobs,
                          .prompt_logprobs = plan_.echo && scores(),
                          .settings = options.settings};
  // A draw is a function of seed and position: samples of one prompt need seeds of their own.
  if (const int sample = s.choice.index() % options.n; sample > 0)
    request.sampling.seed = derive_seed(options.sampling.seed, fmt::format("sample {}", sample));
  if (!options.ignore_eos) request.stop_ids.push_back(context_.encoding.eos());
  if (chat())
    for (const std::int32_t id : context_.encoding.never_in_answers()) request.stop_ids.push_back(id);
  return request;
}

std::optional<ApiError> Generation::submit_all() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    Sequence& s = sequences_[i];
    auto sink = std::make_shared<SequenceSink>(shared_from_this(), exchange_, i);
    {
      const std::lock_guard lock(sinks_mutex_);
      sinks_.push_back(sink);
    }
    const auto id = context_.generator.submit(make_request(s), sink);
    if (!id) {
      sink->detach();
      return rejection_error(id.error());
    }
    s.id = *id;
    s.submitted = true;
    ++unfinished_;
  }
  return std::nullopt;
}

void Generation::start() {
  context_.running.add(shared_from_this());
  exchange_->on_gone([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->answered_) return;
    self->answered_ = true;
    self->context_.metrics.client_gone();
    self->cancel_all();
  });
  if (const auto refused = submit_all()) {
    context_.metrics.refused(refused->code);
    fail(*refused);
    if (unfinished_ == 0) release();
    return;
  }
  context_.metrics.generation_started(streams());
  begin_answer();
}

void Generation::begin_answer() {
  if (plan_.form == GenerationPlan::Form::health) {
    exchange_->after(context_.health_timeout, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self != nullptr && !self->answered_)
        self->fail(server_error(503, "no token within the time limit", "timeout"));
    });
    return;
  }
  if (streams()) {
    header_sent_ = true;
    exchange_->start_events(std::move(plan_.headers));
    const auto usage = usage_so_far();
    for (const Sequence& s : sequences_)
      if (chat()) exchange_->send(role_event(head_, s.choice.index(), usage ? &*usage : nullptr));
    keep_alive();
  }
  for (Sequence& s : sequences_) {
    if (chat()) show(s, s.choice.start(plan_.chat.answer_start));
    if (plan_.echo && !scores()) show(s, s.choice.echo(nullptr));
  }
}

void Generation::keep_alive() {
  if (context_.keep_alive.count() == 0) return;
  exchange_->after(context_.keep_alive, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->answered_ || self->token_seen_) return;
    self->exchange_->send(kKeepAliveComment);
    self->keep_alive();
  });
}

void Generation::on_prompt_scores(std::size_t index, const std::vector<TokenScore>& scores) {
  if (answered_) return;
  Sequence& s = sequences_[index];
  CHECK(scores.size() + 1 == s.choice.prompt().size());
  if (plan_.echo) show(s, s.choice.echo(&scores));
}

void Generation::count_token(Sequence& s, std::int32_t id) {
  const Clock::time_point now = Clock::now();
  if (s.choice.generated() == 0)
    context_.metrics.first_token(seconds_between(plan_.arrival, now));
  else
    context_.metrics.next_token(seconds_between(s.last_token_at, now));
  if (id != context_.encoding.eos() && context_.encoding.is_special(id) && !context_.encoding.is_read_in_answers(id))
    context_.metrics.special_token(context_.texts.bytes(id));
  s.last_token_at = now;
  token_seen_ = true;
}

void Generation::on_token(std::size_t index, const TokenScore& token) {
  Sequence& s = sequences_[index];
  if (answered_ || s.stopped) return;
  CHECK(0 <= token.id && token.id < context_.texts.size());
  count_token(s, token.id);
  show(s, s.choice.add(token));
  if (!s.choice.complete()) return;
  s.stopped = true;
  context_.generator.cancel(s.id);
}

void Generation::show(Sequence& s, std::vector<ReplyDelta> deltas) {
  if (!plan_.chat.include_reasoning)
    std::erase_if(deltas, [](const ReplyDelta& delta) { return delta.kind == ReplyDelta::Kind::reasoning; });
  if (streams())
    send(s, deltas);
  else
    s.choice.gather(deltas);
}

void Generation::send(Sequence& s, const std::vector<ReplyDelta>& deltas) {
  const bool wants_ids = plan_.options.return_token_ids;
  const auto usage = usage_so_far();
  const auto send_one = [&](const ReplyDelta& delta, bool first) {
    ChoicePart part = s.choice.meta();
    // Log-probabilities and ids ride on the first event of their step.
    if (first && s.choice.has_scores()) s.choice.take_scores(part);
    if (first && wants_ids) part.token_ids = &s.choice.token_ids();
    const std::string call_id = delta.kind == ReplyDelta::Kind::call ? s.choice.call_id(delta) : std::string();
    exchange_->send(delta_event(head_, part, delta, call_id, usage ? &*usage : nullptr));
    if (first) s.choice.token_ids().clear();
  };
  bool first = true;
  for (const ReplyDelta& delta : deltas)
    if (delta.kind != ReplyDelta::Kind::call_void) send_one(delta, std::exchange(first, false));
  const bool rides = s.choice.has_scores() || (wants_ids && !s.choice.token_ids().empty());
  if (first && rides) send_one({.kind = ReplyDelta::Kind::content, .text = {}, .call = 0}, true);
}

void Generation::end_sequence(Sequence& s, Finish reason) {
  std::vector<ReplyDelta> rest = s.choice.end(reason);
  if (!streams() || !rest.empty()) show(s, std::move(rest));
  if (!streams()) return;
  const auto usage = usage_so_far();
  exchange_->send(finish_event(head_, s.choice.part(), usage ? &*usage : nullptr));
}

void Generation::on_finish(std::size_t index, Finish reason, Usage usage) {
  Sequence& s = sequences_[index];
  CHECK(!s.finished);
  s.finished = true;
  s.usage = usage;
  // Tokens after the end of the answer were drawn but are not part of it.
  s.usage.completion_tokens = s.choice.generated();
  --unfinished_;
  const bool cancelled = reason == Finish::cancelled && !s.stopped;
  const bool failed = reason == Finish::failed;
  if (!answered_ && cancelled) fail(stopping_error());
  if (!answered_ && failed) {
    spdlog::error("the model gave logits that are not finite");
    fail(model_error());
  }
  if (!answered_) end_sequence(s, reason);
  const std::string& end = s.choice.part().finish_reason;
  const char* otherwise = s.stopped || reason == Finish::stop ? "stop" : "length";
  context_.metrics.sequence_finished(cancelled      ? "cancelled"
                                     : failed       ? "failed"
                                     : !end.empty() ? end
                                                    : std::string(otherwise),
                                     s.usage);
  if (!answered_ && unfinished_ == 0) end_answer();
  if (unfinished_ == 0) release();
}

ReplyUsage Generation::total_usage() const {
  ReplyUsage total;
  for (const Sequence& s : sequences_) {
    total.completion_tokens += s.choice.generated();
    total.reasoning_tokens += s.choice.reasoning_tokens();
    // Samples share their prompt: it counts once, as the first of them met it.
    if (s.choice.index() % plan_.options.n != 0) continue;
    total.prompt_tokens += static_cast<std::int64_t>(s.choice.prompt().size());
    total.cached_tokens += s.usage.cached_tokens;
  }
  return total;
}

std::optional<ReplyUsage> Generation::usage_so_far() const {
  if (!plan_.options.continuous_usage) return std::nullopt;
  return total_usage();
}

void Generation::end_answer() {
  answered_ = true;
  context_.metrics.generation_finished(seconds_between(plan_.arrival, Clock::now()));
  if (plan_.form == GenerationPlan::Form::health) {
    const bool works = sequences_.front().choice.generated() > 0;
    return exchange_->reply({.status = works ? 200 : 503,
                             .body = fmt::format(R"({{"status":"{}"}})", works ? "ok" : "no token"),
                             .headers = {}});
  }
  if (streams()) {
    if (plan_.options.include_usage) exchange_->send(usage_event(head_, total_usage()));
    exchange_->send(kDoneEvent);
    return exchange_->end_events();
  }
  std::vector<ChoicePart> choices;
  for (Sequence& s : sequences_) {
    s.choice.take_scores(s.choice.part());
    if (plan_.options.return_token_ids) {
      s.choice.part().token_ids = &s.choice.token_ids();
      s.choice.part().prompt_token_ids = &s.choice.prompt();
    }
    choices.push_back(std::move(s.choice.part()));
  }
  exchange_->reply({.body = complete_reply(head_, choices, total_usage()), .headers = std::move(plan_.headers)});
}

void Generation::fail(const ApiError& error) {
  answered_ = true;
  cancel_all();
  if (!header_sent_) return exchange_->reply(error_reply(error));
  exchange_->send(error_event(error_body(error)));
  exchange_->end_events();
}

void Generation::cancel_all() {
  for (const Sequence& s : sequences_)
    if (s.submitted && !s.finished) context_.generator.cancel(s.id);
}

void Generation::cancel_for_stop() {
  exchange_->post([self = shared_from_this()] {
    if (!self->answered_) self->fail(stopping_error());
  });
}

void Generation::detach() {
  std::vector<std::shared_ptr<SequenceSink>> sinks;
  {
    const std::lock_guard lock(sinks_mutex_);
    sinks.swap(sinks_);
  }
  for (const auto& sink : sinks) sink->detach();
}

void Generation::release() {
  detach();
  context_.running.remove(shared_from_this());
}

void start_generation(const GenerationContext& context, GenerationPlan plan, std::shared_ptr<Exchange> exchange) {
  CHECK(plan.options.max_tokens.has_value() && !plan.prompts.empty());
  std::make_shared<Generation>(context, std::move(plan), std::move(exchange))->start();
}

ApiError rejection_error(const Rejection& rejection) {
  using Kind = Rejection::Kind;
  switch (rejection.kind) {
    case Kind::too_long:
      return {.message = rejection.message, .param = "", .code = "context_length_exceeded"};
    case Kind::invalid:
      return {.message = rejection.message, .param = "", .code = "invalid_value"};
    case Kind::overloaded:
      return server_error(503, rejection.message, "overloaded");
    case Kind::stopping:
      break;
  }
  return server_error(503, rejection.message, "stopping");
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = error_body(error), .headers = {}};
  if (error.status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace plumb::server
