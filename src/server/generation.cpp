#include "server/generation.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/check.h"
#include "base/rng.h"
#include "server/reply_form.h"
#include "server/text_stream.h"

namespace plumb::server {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::uint64_t random_bits() {
  static const std::uint64_t base = [] {
    std::random_device device;
    return (std::uint64_t{device()} << 32) ^ device();
  }();
  static std::atomic<std::uint64_t> count{0};
  return mix64(base + count.fetch_add(1));
}

ApiError model_error() {
  return {.status = 500,
          .type = "server_error",
          .message = "the model gave logits that are not finite; its weights or config are damaged",
          .param = "",
          .code = "model_failure"};
}

ApiError stopping_error() {
  return {.status = 503, .type = "server_error", .message = "the server is stopping", .param = "", .code = "stopping"};
}

}  // namespace

// Receives a sequence's tokens on the generator's thread and hands them to the strand of its exchange.
class SequenceSink final : public TokenSink {
 public:
  SequenceSink(std::shared_ptr<Generation> generation, std::shared_ptr<Exchange> exchange, std::size_t index)
      : generation_(std::move(generation)), exchange_(std::move(exchange)), index_(index) {}

  void on_prompt_scores(std::vector<TokenScore> scores) override;
  void on_token(TokenScore token) override;
  void on_finish(Finish reason, Usage usage) override;

  void detach() {
    // Released outside the lock: this may be the last reference to either.
    std::shared_ptr<Generation> generation;
    std::shared_ptr<Exchange> exchange;
    const std::lock_guard lock(mutex_);
    generation.swap(generation_);
    exchange.swap(exchange_);
  }

 private:
  template <class Task>
  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (generation_ != nullptr)
      exchange_->post([task = std::move(task), generation = generation_]() mutable { task(*generation); });
  }

  std::mutex mutex_;
  std::shared_ptr<Generation> generation_;
  std::shared_ptr<Exchange> exchange_;
  const std::size_t index_;
};

// One request for tokens from submission to the end of its answer. Everything runs on the exchange's strand, except
// cancel_for_stop and detach.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(const GenerationContext& context, GenerationPlan plan, std::shared_ptr<Exchange> exchange);

  void start();
  void on_prompt_scores(std::size_t index, const std::vector<TokenScore>& scores);
  void on_token(std::size_t index, const TokenScore& token);
  void on_finish(std::size_t index, Finish reason, Usage usage);

  void cancel_for_stop();
  void detach();

 private:
  struct Sequence {
    std::size_t prompt_index = 0;
    std::uint64_t id = 0;
    Utf8Stream utf8;
    StopMatcher stop;
    CompletionLogprobs completion_logprobs;
    ChatLogprobs chat_logprobs;
    ChoicePart part;                      // not streamed: the choice so far
    std::vector<std::int32_t> token_ids;  // generated; streamed: since the last event
    std::size_t characters = 0;           // shown or held back
    std::int64_t generated = 0;
    std::int32_t last_id = -1;
    bool submitted = false;
    bool stopped = false;  // a stop string came; what follows is not wanted
    bool finished = false;
    Clock::time_point last_token_at;
    Usage usage;
  };

  bool streams() const { return plan_.options.stream; }
  bool chat() const { return plan_.form == GenerationPlan::Form::chat; }
  bool scores() const { return plan_.options.logprobs >= 0; }
  Sequence& sequence(std::size_t index) { return sequences_[index]; }
  const std::vector<std::int32_t>& prompt_of(const Sequence& s) const { return plan_.prompts[s.prompt_index]; }

  GenerateRequest make_request(const Sequence& s, int sample) const;
  std::optional<ApiError> submit_all();
  void begin_answer();
  void echo_prompt(Sequence& s, const std::vector<TokenScore>* scores);
  std::string shown_text(Sequence& s, std::int32_t id);
  std::string advance(Sequence& s, std::string_view bytes);
  void count_token(Sequence& s, std::int32_t id);
  void show(Sequence& s, std::string text);
  std::string take_logprobs(Sequence& s);
  void end_sequence(Sequence& s, Finish reason);
  void end_answer();
  void fail(const ApiError& error);
  void cancel_all();
  void keep_alive();
  void release();
  Usage total_usage() const;

  const GenerationContext& context_;
  GenerationPlan plan_;
  ReplyHead head_;
  std::shared_ptr<Exchange> exchange_;
  std::vector<Sequence> sequences_;
  std::size_t unfinished_ = 0;
  bool answered_ = false;     // nothing more goes to the client
  bool header_sent_ = false;  // of a stream: errors become events
  bool token_seen_ = false;

  std::mutex sinks_mutex_;
  std::vector<std::shared_ptr<SequenceSink>> sinks_;
};

void SequenceSink::on_prompt_scores(std::vector<TokenScore> scores) {
  post([scores = std::move(scores), i = index_](Generation& g) { g.on_prompt_scores(i, scores); });
}
void SequenceSink::on_token(TokenScore token) {
  post([token = std::move(token), i = index_](Generation& g) { g.on_token(i, token); });
}
void SequenceSink::on_finish(Finish reason, Usage usage) {
  post([reason, usage, i = index_](Generation& g) { g.on_finish(i, reason, usage); });
}

Generation::Generation(const GenerationContext& context, GenerationPlan plan, std::shared_ptr<Exchange> exchange)
    : context_(context), plan_(std::move(plan)), exchange_(std::move(exchange)) {
  head_ = {
      .chat = chat(),
      .id = fmt::format("{}{:016x}{:08x}", chat() ? "chatcmpl-" : "cmpl-", random_bits(), random_bits() >> 32),
      .model = context_.model,
      .created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                     .count()};
  if (!plan_.options.seed_given) plan_.options.sampling.seed = random_bits();
  const auto samples = static_cast<std::size_t>(plan_.options.n);
  for (std::size_t i = 0; i < plan_.prompts.size() * samples; ++i) {
    Sequence& s = sequences_.emplace_back(Sequence{.prompt_index = i / samples,
                                                   .utf8 = {},
                                                   .stop = StopMatcher(plan_.options.stop),
                                                   .completion_logprobs = CompletionLogprobs(context_.texts),
                                                   .chat_logprobs = ChatLogprobs(context_.texts),
                                                   .part = {},
                                                   .token_ids = {},
                                                   .last_token_at = {},
                                                   .usage = {}});
    s.part.index = static_cast<int>(i);
  }
}

GenerateRequest Generation::make_request(const Sequence& s, int sample) const {
  const GenerationOptions& options = plan_.options;
  GenerateRequest request{.prompt = prompt_of(s),
                          .max_tokens = *options.max_tokens,
                          .sampling = options.sampling,
                          .stop_ids = options.stop_token_ids,
                          .top_logprobs = options.logprobs,
                          .prompt_logprobs = plan_.echo && scores(),
                          .settings = options.settings};
  // A draw is a function of seed and position: samples of one prompt need seeds of their own.
  if (sample > 0) request.sampling.seed = derive_seed(options.sampling.seed, fmt::format("sample {}", sample));
  if (!options.ignore_eos) request.stop_ids.push_back(context_.encoding.eos());
  return request;
}

std::optional<ApiError> Generation::submit_all() {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    Sequence& s = sequence(i);
    auto sink = std::make_shared<SequenceSink>(shared_from_this(), exchange_, i);
    {
      const std::lock_guard lock(sinks_mutex_);
      sinks_.push_back(sink);
    }
    const auto id = context_.generator.submit(make_request(s, static_cast<int>(i) % plan_.options.n), sink);
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
      if (self == nullptr || self->answered_) return;
      self->fail({.status = 503,
                  .type = "server_error",
                  .message = "no token within the time limit",
                  .param = "",
                  .code = "timeout"});
    });
    return;
  }
  if (streams()) {
    header_sent_ = true;
    exchange_->start_events(std::move(plan_.headers));
    for (const Sequence& s : sequences_)
      if (chat()) exchange_->send(role_event(head_, s.part.index));
    keep_alive();
  }
  if (plan_.echo && !scores())
    for (Sequence& s : sequences_) echo_prompt(s, nullptr);
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

void Generation::echo_prompt(Sequence& s, const std::vector<TokenScore>* scores) {
  const std::vector<std::int32_t>& prompt = prompt_of(s);
  std::string text;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (scores != nullptr && i == 0) s.completion_logprobs.append_unscored(prompt[0], s.characters);
    if (scores != nullptr && i > 0) s.completion_logprobs.append((*scores)[i - 1], s.characters);
    const std::string more = s.utf8.push(context_.texts.bytes(prompt[i]));
    s.characters += count_characters(more);
    text += more;
  }
  show(s, std::move(text));
}

void Generation::on_prompt_scores(std::size_t index, const std::vector<TokenScore>& scores) {
  if (answered_) return;
  Sequence& s = sequence(index);
  CHECK(scores.size() + 1 == prompt_of(s).size());
  if (plan_.echo) echo_prompt(s, &scores);
}

// Bytes that the sequence produced, as the text that can be shown now.
std::string Generation::advance(Sequence& s, std::string_view bytes) {
  const bool at_start = s.characters == 0;
  std::string text = s.utf8.push(bytes);
  s.characters += count_characters(text);
  if (chat() && context_.chat_leading_space && at_start && text.starts_with(' ')) text.erase(0, 1);
  return s.stop.push(text);
}

std::string Generation::shown_text(Sequence& s, std::int32_t id) {
  const GenerationOptions& options = plan_.options;
  const auto& stops = options.stop_token_ids;
  const bool hidden = id == context_.encoding.eos() || std::find(stops.begin(), stops.end(), id) != stops.end() ||
                      (options.skip_special_tokens && context_.encoding.is_special(id));
  return hidden ? std::string() : advance(s, context_.texts.bytes(id));
}

void Generation::count_token(Sequence& s, std::int32_t id) {
  const Clock::time_point now = Clock::now();
  if (s.generated == 0)
    context_.metrics.first_token(std::chrono::duration<double>(now - plan_.arrival).count());
  else
    context_.metrics.next_token(std::chrono::duration<double>(now - s.last_token_at).count());
  if (id != context_.encoding.eos() && context_.encoding.is_special(id))
    context_.metrics.special_token(context_.texts.bytes(id));
  s.last_token_at = now;
  s.last_id = id;
  ++s.generated;
  token_seen_ = true;
}

void Generation::on_token(std::size_t index, const TokenScore& token) {
  Sequence& s = sequence(index);
  if (answered_ || s.stopped) return;
  CHECK(0 <= token.id && token.id < context_.texts.size());
  count_token(s, token.id);
  s.token_ids.push_back(token.id);
  if (scores() && chat()) s.chat_logprobs.append(token);
  if (scores() && !chat()) s.completion_logprobs.append(token, s.characters);
  show(s, shown_text(s, token.id));
  if (!s.stop.matched()) return;
  s.stopped = true;
  context_.generator.cancel(s.id);
}

std::string Generation::take_logprobs(Sequence& s) {
  if (!scores()) return "null";
  return chat() ? s.chat_logprobs.take() : s.completion_logprobs.take();
}

void Generation::show(Sequence& s, std::string text) {
  if (!streams()) {
    s.part.text += text;
    return;
  }
  const bool news = !text.empty() || scores() || plan_.options.return_token_ids;
  if (!news) return;
  ChoicePart part;
  part.index = s.part.index;
  part.text = std::move(text);
  part.logprobs = take_logprobs(s);
  if (plan_.options.return_token_ids) part.token_ids = &s.token_ids;
  exchange_->send(text_event(head_, part));
  s.token_ids.clear();
}

void Generation::end_sequence(Sequence& s, Finish reason) {
  std::string rest = s.stop.matched() ? std::string() : s.utf8.finish();
  if (!s.stop.matched()) rest = s.stop.push(rest) + s.stop.finish();
  const std::int32_t eos = context_.encoding.eos();
  s.part.finish_reason = s.stopped || reason == Finish::stop ? "stop" : "length";
  if (s.stopped)
    s.part.stop_reason = json_quote(s.stop.match());
  else if (reason == Finish::stop && s.last_id != eos)
    s.part.stop_reason = fmt::format("{}", s.last_id);
  if (!streams()) {
    s.part.text += rest;
    return;
  }
  if (!rest.empty()) show(s, std::move(rest));
  exchange_->send(finish_event(head_, s.part));
}

void Generation::on_finish(std::size_t index, Finish reason, Usage usage) {
  Sequence& s = sequence(index);
  CHECK(!s.finished);
  s.finished = true;
  s.usage = usage;
  // Tokens after a stop string were drawn but are not part of the answer.
  s.usage.completion_tokens = s.generated;
  --unfinished_;
  const bool cancelled = reason == Finish::cancelled && !s.stopped;
  const bool failed = reason == Finish::failed;
  const char* ends = cancelled                             ? "cancelled"
                     : failed                              ? "failed"
                     : s.stopped || reason == Finish::stop ? "stop"
                                                           : "length";
  context_.metrics.sequence_finished(ends, s.usage);
  if (!answered_ && cancelled) fail(stopping_error());
  if (!answered_ && failed) {
    spdlog::error("the model gave logits that are not finite");
    fail(model_error());
  }
  if (!answered_) end_sequence(s, reason);
  if (!answered_ && unfinished_ == 0) end_answer();
  if (unfinished_ == 0) release();
}

Usage Generation::total_usage() const {
  Usage total;
  for (const Sequence& s : sequences_) {
    total.completion_tokens += s.usage.completion_tokens;
    // Samples share their prompt: it counts once, as the first of them met it.
    if (s.part.index % plan_.options.n != 0) continue;
    total.prompt_tokens += static_cast<std::int64_t>(prompt_of(s).size());
    total.cached_tokens += s.usage.cached_tokens;
  }
  return total;
}

void Generation::end_answer() {
  answered_ = true;
  context_.metrics.generation_finished(seconds_since(plan_.arrival));
  if (plan_.form == GenerationPlan::Form::health) {
    const bool works = sequences_.front().generated > 0;
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
    s.part.logprobs = take_logprobs(s);
    if (plan_.options.return_token_ids) {
      s.part.token_ids = &s.token_ids;
      s.part.prompt_token_ids = &prompt_of(s);
    }
    choices.push_back(std::move(s.part));
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

void RunningGenerations::add(const std::shared_ptr<Generation>& generation) {
  const std::lock_guard lock(mutex_);
  running_.insert(generation);
}

void RunningGenerations::remove(const std::shared_ptr<Generation>& generation) {
  {
    const std::lock_guard lock(mutex_);
    running_.erase(generation);
  }
  changed_.notify_all();
}

bool RunningGenerations::wait_until_none(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return running_.empty(); });
}

std::vector<std::shared_ptr<Generation>> RunningGenerations::all() const {
  const std::lock_guard lock(mutex_);
  return {running_.begin(), running_.end()};
}

void RunningGenerations::cancel_all() {
  for (const auto& generation : all()) generation->cancel_for_stop();
}

void RunningGenerations::detach_all() {
  for (const auto& generation : all()) generation->detach();
  const std::lock_guard lock(mutex_);
  running_.clear();
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
      return {.status = 503, .type = "server_error", .message = rejection.message, .param = "", .code = "overloaded"};
    case Kind::stopping:
      break;
  }
  return {.status = 503, .type = "server_error", .message = rejection.message, .param = "", .code = "stopping"};
}

HttpReply error_reply(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = error_body(error), .headers = {}};
  if (error.status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

}  // namespace plumb::server
