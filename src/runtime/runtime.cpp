#include "runtime/runtime.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <unistd.h>

#include "base/check.h"
#include "engine/engine.h"
#include "runtime/sampler.h"
#include "runtime/steps.h"

namespace plumb {
namespace {

std::int64_t pages_for(std::int64_t tokens) { return tokens / kPageTokens + (tokens % kPageTokens != 0); }

// Window pages that a pass of `tokens` tokens may touch, with the window before it; borders need not be aligned.
std::int64_t pass_window_pages(const StateLayout& layout, std::int64_t tokens) {
  return pages_for(layout.window()) + pages_for(tokens) + 1;
}

// Room for all running sequences at chunk size, and for one whole prompt of the largest size beside them.
std::int64_t window_plan(const StateLayout& layout, const RuntimeOptions& options) {
  return options.max_running * pass_window_pages(layout, options.chunk_tokens) +
         pass_window_pages(layout, options.max_context_tokens);
}

struct Sequence {
  std::uint64_t id;
  GenerateRequest request;
  std::shared_ptr<TokenSink> sink;
  std::string key;                   // of the prefix cache
  std::vector<std::int32_t> tokens;  // prompt, then what was generated
  SequencePages pages;
  std::int64_t window_reserved = 0;  // window pages set aside for it
  std::int64_t next_tokens = 0;      // in the pass being built
  // Page borders that lie inside the pass being built, and the open part there.
  std::vector<OpenSnapshot> snapshots;
  std::vector<std::vector<float>> snapshot_open;
  std::vector<TokenScore> prompt_scores;
  std::optional<SeenTokens> seen;  // when the request's sampling adjusts logits
  Usage usage;

  std::int64_t prompt_tokens() const { return static_cast<std::int64_t>(request.prompt.size()); }
  bool prefilling() const { return pages.state.length < prompt_tokens(); }
};

class Runtime final : public Generator {
 public:
  Runtime(Engine engine, PagePool pages, PagePool window_pages, const RuntimeOptions& options)
      : options_(options),
        engine_(std::move(engine)),
        pages_(std::move(pages)),
        window_pages_(std::move(window_pages)),
        cache_(pages_, options.prefix_bytes),
        pools_{&engine_.layout(), &pages_, &window_pages_},
        window_free_(window_pages_.page_count()),
        thread_([this] { run(); }) {}

  ~Runtime() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  tl::expected<std::uint64_t, Rejection> submit(GenerateRequest request, std::shared_ptr<TokenSink> sink) override;

  void cancel(std::uint64_t id) override {
    const std::lock_guard lock(mutex_);
    if (live_.contains(id)) cancelled_.insert(id);
    wake_.notify_all();
  }

  GeneratorStats stats() const override {
    const std::lock_guard lock(mutex_);
    GeneratorStats stats = stats_;
    stats.waiting = static_cast<std::int64_t>(waiting_.size());
    return stats;
  }

  std::int64_t max_context_tokens() const override { return options_.max_context_tokens; }

 private:
  std::int64_t window_need(const GenerateRequest& request) const {
    const bool chunked = request.settings.on(switch_index("prefill.chunked"));
    const auto prompt = static_cast<std::int64_t>(request.prompt.size());
    return pass_window_pages(engine_.layout(), chunked ? std::min(options_.chunk_tokens, prompt) : prompt);
  }

  std::optional<Rejection> refuse(const GenerateRequest& request) const;
  std::int32_t draw(Sequence& sequence, std::span<const float> logits);
  void run();
  void drop_cancelled();
  void admit();
  bool start(Sequence& sequence);
  std::vector<Sequence*> choose_batch();
  void run_pass(const std::vector<Sequence*>& batch);
  void take_logits(Sequence& sequence, View<const float, 2> logits);
  void place_snapshots(Sequence& sequence);
  void store_borders(Sequence& sequence);
  void store_prefix(Sequence& sequence, const SequenceState& state);
  void finish(Sequence& sequence, Finish reason);

  const RuntimeOptions options_;
  Engine engine_;
  PagePool pages_;
  PagePool window_pages_;
  PrefixCache cache_;
  Pools pools_;
  std::int64_t window_free_;  // not reserved by a running sequence
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<float> logits_;
  std::vector<float> adjusted_;  // one row of them
  std::uint64_t turn_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::set<std::uint64_t> live_;  // submitted, not yet finished
  std::set<std::uint64_t> cancelled_;
  GeneratorStats stats_;
  std::uint64_t next_id_ = 1;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

// What the sampler cannot take: the bounds of the API that clients know.
std::optional<Rejection> refuse_sampling(const Sampling& sampling, std::int64_t vocab) {
  const auto invalid = [](std::string message) { return Rejection{Rejection::Kind::invalid, std::move(message)}; };
  const auto within = [](double x, double low, double high) { return low <= x && x <= high; };  // false for NaN
  constexpr double kUnbounded = std::numeric_limits<double>::max();
  if (!within(sampling.temperature, 0, kUnbounded))
    return invalid(fmt::format("temperature {}: must be 0 or more", sampling.temperature));
  if (!within(sampling.top_p, 0, 1) || !within(sampling.min_p, 0, 1))
    return invalid(fmt::format("top_p {} and min_p {}: must be from 0 to 1", sampling.top_p, sampling.min_p));
  for (const double penalty : {sampling.presence_penalty, sampling.frequency_penalty})
    if (!within(penalty, -2, 2))
      return invalid(fmt::format("presence or frequency penalty {}: must be from -2 to 2", penalty));
  if (!within(sampling.repetition_penalty, std::numeric_limits<double>::min(), kUnbounded))
    return invalid(fmt::format("repetition penalty {}: must be above 0", sampling.repetition_penalty));
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id < 0 || id >= vocab)
      return invalid(fmt::format("logit_bias: token id {} is outside the vocabulary of {}", id, vocab));
    if (!within(bias, -100, 100))
      return invalid(fmt::format("logit_bias of token id {}: {} is not from -100 to 100", id, bias));
  }
  return std::nullopt;
}

std::optional<Rejection> Runtime::refuse(const GenerateRequest& request) const {
  using Kind = Rejection::Kind;
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) return Rejection{Kind::invalid, "the prompt has no tokens"};
  if (request.max_tokens < 0) return Rejection{Kind::invalid, "max_tokens is negative"};
  const std::int64_t vocab = engine_.config().vocab_size;
  for (const std::int32_t id : request.prompt)
    if (id < 0 || id >= vocab)
      return Rejection{Kind::invalid, fmt::format("token id {} is outside the vocabulary of {}", id, vocab)};
  if (auto refused = refuse_sampling(request.sampling, vocab)) return refused;
  const std::int64_t limit = options_.max_context_tokens;
  if (prompt > limit || request.max_tokens > limit - prompt)
    return Rejection{Kind::too_long, fmt::format("{} prompt tokens and max_tokens {} exceed the context of {} tokens",
                                                 prompt, request.max_tokens, limit)};
  if (request.prompt_logprobs && prompt > options_.score_bytes / (vocab * 4))
    return Rejection{Kind::too_long, fmt::format("{} prompt tokens are more than can be scored at once: {}", prompt,
                                                 options_.score_bytes / (vocab * 4))};
  if (window_need(request) > window_pages_.page_count())
    return Rejection{Kind::too_long,
                     fmt::format("a pass of {} prompt tokens needs more window pages than there are", prompt)};
  return std::nullopt;
}

tl::expected<std::uint64_t, Rejection> Runtime::submit(GenerateRequest request, std::shared_ptr<TokenSink> sink) {
  auto refused = refuse(request);
  const std::lock_guard lock(mutex_);
  if (!refused && stopping_) refused = Rejection{Rejection::Kind::stopping, "the server is stopping"};
  if (!refused && waiting_.size() >= static_cast<std::size_t>(options_.max_waiting))
    refused = Rejection{Rejection::Kind::overloaded, fmt::format("{} requests are waiting already", waiting_.size())};
  if (refused) {
    ++stats_.rejected;
    return tl::unexpected(*refused);
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id_++;
  sequence->key = request.settings.key();
  sequence->tokens = request.prompt;
  sequence->usage.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  sequence->request = std::move(request);
  sequence->sink = std::move(sink);
  const std::uint64_t id = sequence->id;
  live_.insert(id);
  waiting_.push_back(std::move(sequence));
  wake_.notify_all();
  return id;
}

void Runtime::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      stats_.running = static_cast<std::int64_t>(running_.size());
      stats_.pages_total = pages_.page_count();
      stats_.pages_used = pages_.page_count() - pages_.free_count();
      if (stopping_ && live_.empty()) return;
      wake_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !running_.empty() || !cancelled_.empty(); });
      if (stopping_) cancelled_ = live_;
    }
    drop_cancelled();
    admit();
    if (const auto batch = choose_batch(); !batch.empty()) run_pass(batch);
  }
}

void Runtime::drop_cancelled() {
  std::set<std::uint64_t> ids;
  std::vector<std::unique_ptr<Sequence>> never_started;
  {
    const std::lock_guard lock(mutex_);
    ids.swap(cancelled_);
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (ids.contains((*it)->id)) {
        never_started.push_back(std::move(*it));
        it = waiting_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const auto& sequence : never_started) finish(*sequence, Finish::cancelled);
  for (const auto& sequence : running_)
    if (ids.contains(sequence->id)) finish(*sequence, Finish::cancelled);
  std::erase_if(running_, [](const auto& sequence) { return sequence->id == 0; });
}

// First come, first served: a request that does not fit yet holds back those behind it, so that none starves.
void Runtime::admit() {
  while (running_.size() < static_cast<std::size_t>(options_.max_running)) {
    std::unique_ptr<Sequence> sequence;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      sequence = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (start(*sequence)) {
      running_.push_back(std::move(sequence));
      continue;
    }
    const std::lock_guard lock(mutex_);
    waiting_.push_front(std::move(sequence));
    return;
  }
}

bool Runtime::start(Sequence& sequence) {
  const std::int64_t need = pages_for(sequence.prompt_tokens() + sequence.request.max_tokens);
  const std::int64_t window = window_need(sequence.request);
  if (window > window_free_ || !cache_.make_room(need)) return false;
  window_free_ -= sequence.window_reserved = window;
  for (std::int64_t i = 0; i < need; ++i) {
    sequence.pages.pages.push_back(pages_.take());
    sequence.pages.state.pages.push_back(pages_.data(sequence.pages.pages.back()));
  }
  const PrefixStart start{pools_, &cache_, &sequence.key, sequence.request.prompt, &sequence.pages};
  // A scored prompt needs the logits of every position, so it cannot start behind them.
  if (sequence.request.prompt_logprobs)
    start_cold(start);
  else
    chosen_side<"prefix_cache">(sequence.request.settings, start);
  sequence.usage.cached_tokens = sequence.pages.state.length;
  return true;
}

// One settings vector a batch: that of the sequence whose turn it is. Decoding sequences take one token each, prompts
// share what is left of the pass.
std::vector<Sequence*> Runtime::choose_batch() {
  std::vector<Sequence*> batch;
  if (running_.empty()) return batch;
  const std::size_t first = turn_++ % running_.size();
  const Settings& settings = running_[first]->request.settings;
  std::int64_t budget = options_.chunk_tokens;
  for (const bool prefill : {false, true}) {
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Sequence& sequence = *running_[(first + i) % running_.size()];
      if (sequence.prefilling() != prefill || !(sequence.request.settings == settings)) continue;
      sequence.next_tokens = 1;
      if (prefill) {
        if (budget <= 0) continue;
        const PrefillStep step{&engine_.layout(), &sequence.pages.state, sequence.prompt_tokens(),
                               options_.chunk_tokens};
        sequence.next_tokens = chosen_side<"prefill.chunked">(settings, step);
      }
      budget -= sequence.next_tokens;
      batch.push_back(&sequence);
    }
  }
  return batch;
}

void Runtime::run_pass(const std::vector<Sequence*>& batch) {
  std::vector<BatchSequence> sequences;
  for (Sequence* sequence : batch) {
    const std::int64_t begin = sequence->pages.state.length;
    ensure_window(pools_, sequence->pages, begin, begin + sequence->next_tokens);
    const auto tokens = std::span(sequence->tokens)
                            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(sequence->next_tokens));
    const bool score = sequence->request.prompt_logprobs && sequence->prefilling();
    place_snapshots(*sequence);
    sequences.push_back({&sequence->pages.state, tokens, score, nullptr, sequence->snapshots});
  }
  const Batch pass{sequences, &batch.front()->request.settings};
  const std::int64_t vocab = engine_.config().vocab_size;
  const std::int64_t rows = Engine::logits_rows(pass);
  logits_.resize(static_cast<std::size_t>(rows * vocab));
  const View<float, 2> logits(logits_.data(), {rows, vocab});
  pages_.before_writes();
  engine_.forward(pass, logits);

  std::int64_t row = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::int64_t count = sequences[i].all_logits ? batch[i]->next_tokens : 1;
    take_logits(*batch[i], logits.rows(row, row + count));
    row += count;
  }
  std::erase_if(running_, [](const auto& sequence) { return sequence->id == 0; });
}

void Runtime::take_logits(Sequence& sequence, View<const float, 2> logits) {
  const std::int64_t length = sequence.pages.state.length;
  const GenerateRequest& request = sequence.request;
  const auto row = [&](std::int64_t i) { return std::span(logits.row(i), static_cast<std::size_t>(logits.extent(1))); };
  const bool was_prompt = length <= sequence.prompt_tokens();
  if (was_prompt && request.prompt_logprobs) {
    const std::int64_t begin = length - logits.extent(0);
    for (std::int64_t p = begin; p < std::min(length, sequence.prompt_tokens() - 1); ++p)
      sequence.prompt_scores.push_back(score_token(row(p - begin), sequence.tokens[static_cast<std::size_t>(p) + 1],
                                                   request.top_logprobs, request.settings));
  }
  for (const float logit : logits.span())
    if (!std::isfinite(logit)) return finish(sequence, Finish::failed);
  store_borders(sequence);
  free_old_window(pools_, sequence.pages);
  if (sequence.prefilling()) return;
  if (length == sequence.prompt_tokens() && request.prompt_logprobs)
    sequence.sink->on_prompt_scores(std::move(sequence.prompt_scores));
  if (request.max_tokens == 0) return finish(sequence, Finish::length);

  const auto last = row(logits.extent(0) - 1);
  const std::int32_t token = draw(sequence, last);
  sequence.tokens.push_back(token);
  ++sequence.usage.completion_tokens;
  sequence.sink->on_token(score_token(last, token, request.top_logprobs, request.settings));
  if (std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) return finish(sequence, Finish::stop);
  if (sequence.usage.completion_tokens >= request.max_tokens) return finish(sequence, Finish::length);
}

// The next token of a sequence whose last row of logits this is.
std::int32_t Runtime::draw(Sequence& sequence, std::span<const float> logits) {
  const GenerateRequest& request = sequence.request;
  if (adjusts_logits(request.sampling)) {
    if (!sequence.seen) sequence.seen.emplace(request.prompt);
    adjusted_.assign(logits.begin(), logits.end());
    adjust_logits(adjusted_, request.sampling, *sequence.seen);
    logits = adjusted_;
  }
  const std::int32_t token = sample_token(logits, request.sampling, sequence.pages.state.length, request.settings);
  if (sequence.seen) sequence.seen->add_generated(token);
  return token;
}

// Tails are taken at every page border that the pass crosses; the last ones, when all of them would not fit the cache.
void Runtime::place_snapshots(Sequence& sequence) {
  sequence.snapshots.clear();
  if (!sequence.request.settings.on(switch_index("prefix_cache"))) return;
  const std::int64_t begin = sequence.pages.state.length, end = begin + sequence.next_tokens;
  const std::int64_t fitting = options_.prefix_bytes / (engine_.layout().tail_floats() * 4);
  const std::int64_t last = (end - 1) / kPageTokens;
  const std::int64_t count = std::min(last - begin / kPageTokens, fitting);
  sequence.snapshot_open.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    sequence.snapshots.push_back(
        {(last - count + 1 + i) * kPageTokens, &sequence.snapshot_open[static_cast<std::size_t>(i)]});
}

// Stores the page borders that the last pass crossed. Window rows of the whole pass are still there.
void Runtime::store_borders(Sequence& sequence) {
  SequenceState& state = sequence.pages.state;
  for (const OpenSnapshot& snapshot : sequence.snapshots) {
    const SequenceState at{snapshot.length, state.pages, state.window_pages, std::move(*snapshot.open)};
    store_prefix(sequence, at);
  }
  sequence.snapshots.clear();
  if (state.length % kPageTokens == 0) store_prefix(sequence, state);
}

void Runtime::store_prefix(Sequence& sequence, const SequenceState& state) {
  const std::int64_t length = state.length;
  if (length == 0 || !sequence.request.settings.on(switch_index("prefix_cache"))) return;
  cache_.insert(sequence.key, std::span(sequence.tokens).first(static_cast<std::size_t>(length)),
                std::span(sequence.pages.pages).first(static_cast<std::size_t>(pages_for(length))), engine_.layout(),
                state);
}

void Runtime::finish(Sequence& sequence, Finish reason) {
  if (!sequence.pages.pages.empty()) {
    if (reason != Finish::failed) store_prefix(sequence, sequence.pages.state);  // nobody may start from such a state
    release_all(pools_, sequence.pages);
    window_free_ += sequence.window_reserved;
  }
  {
    const std::lock_guard lock(mutex_);
    live_.erase(sequence.id);
    cancelled_.erase(sequence.id);
    stats_.prompt_tokens += static_cast<std::uint64_t>(sequence.usage.prompt_tokens);
    stats_.generated_tokens += static_cast<std::uint64_t>(sequence.usage.completion_tokens);
    stats_.cached_tokens += static_cast<std::uint64_t>(sequence.usage.cached_tokens);
    ++(reason == Finish::cancelled ? stats_.cancelled : reason == Finish::failed ? stats_.failed : stats_.finished);
  }
  sequence.id = 0;  // marks it as done for run_pass
  sequence.sink->on_finish(reason, sequence.usage);
}

}  // namespace

Result<std::unique_ptr<Generator>> make_generator(std::shared_ptr<const Model> model,
                                                  std::shared_ptr<Executor> executor, const RuntimeOptions& options) {
  RuntimeOptions plan = options;
  const std::int64_t positions = model->config.max_positions;
  if (plan.max_context_tokens == 0) plan.max_context_tokens = positions;
  if (plan.max_context_tokens < 1 || plan.max_context_tokens > positions)
    return error("max context {}: the model allows 1 to {} tokens", plan.max_context_tokens, positions);
  if (plan.pool_tokens == 0) plan.pool_tokens = 2 * plan.max_context_tokens;
  if (plan.pool_tokens < plan.max_context_tokens)
    return error("pool of {} tokens: one request may need {} (max context)", plan.pool_tokens, plan.max_context_tokens);
  if (plan.chunk_tokens < 1) return error("chunk of {} tokens: it must be at least 1", plan.chunk_tokens);
  plan.chunk_tokens = std::min(plan.chunk_tokens, plan.max_context_tokens);  // more has no effect
  if (plan.max_running < 1 || plan.max_waiting < 1)
    return error("max running {} and max waiting {}: both must be at least 1", plan.max_running, plan.max_waiting);

  Engine engine(std::move(model), std::move(executor), plan.backend, plan.launch);
  const StateLayout& layout = engine.layout();
  const auto gib = [](std::int64_t count, std::int64_t floats) {
    return static_cast<double>(count) * static_cast<double>(floats) * 4 / (1 << 30);
  };
  const double needed = gib(pages_for(plan.pool_tokens), layout.page_floats()) +
                        gib(window_plan(layout, plan), layout.window_page_floats()) + gib(plan.prefix_bytes, 1) / 4;
  const double present = gib(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGE_SIZE)) / 4;
  const auto too_large = [&](const std::string& why) {
    return error(
        "a pool of {} tokens and {} sequences with chunks of {} need {:.1f} GiB: {}; lower --pool-tokens, "
        "--max-running, --chunk-tokens or --max-context",
        plan.pool_tokens, plan.max_running, plan.chunk_tokens, needed, why);
  };
  if (needed > present) return too_large(fmt::format("this machine has {:.1f} GiB", present));
  auto pages = PagePool::make(pages_for(plan.pool_tokens), layout.page_floats());
  if (!pages) return too_large(pages.error().message);
  auto window_pages = PagePool::make(window_plan(layout, plan), layout.window_page_floats());
  if (!window_pages) return too_large(window_pages.error().message);
  return std::make_unique<Runtime>(std::move(engine), std::move(*pages), std::move(*window_pages), plan);
}

}  // namespace plumb
