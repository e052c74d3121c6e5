#include "runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/memory_plan.h"

namespace plumb {

Result<std::unique_ptr<Scheduler>> Scheduler::make(std::shared_ptr<const Model> model,
                                                   std::shared_ptr<Executor> executor, const RuntimeOptions& options) {
  const auto plan = complete_options(options, model->config);
  if (!plan) return tl::unexpected(plan.error());
  Engine engine(std::move(model), std::move(executor), plan->backend, plan->launch);
  auto pools = make_pools(*plan, engine.layout());
  if (!pools) return tl::unexpected(pools.error());
  return std::make_unique<Scheduler>(std::move(engine), std::move(pools->pages), std::move(pools->window_pages), *plan);
}

Scheduler::Scheduler(Engine engine, PagePool pages, PagePool window_pages, const RuntimeOptions& plan)
    : options_(plan),
      engine_(std::move(engine)),
      pages_(std::move(pages)),
      window_pages_(std::move(window_pages)),
      cache_(pages_, plan.prefix_bytes),
      window_free_(window_pages_.page_count()) {
  update_gauges();
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  CHECK(queue_.empty() || queue_.rbegin()->first < sequence->id);
  queue_.emplace(sequence->id, std::move(sequence));
  update_gauges();
}

void Scheduler::cancel(std::uint64_t id) {
  if (const auto it = queue_.find(id); it != queue_.end()) {
    finish(*it->second, Finish::cancelled);
    queue_.erase(it);
  }
  for (const auto& sequence : running_)
    if (sequence->id == id) finish(*sequence, Finish::cancelled);
  drop_done();
  update_gauges();
}

void Scheduler::cancel_all() {
  for (const auto& [id, sequence] : queue_) finish(*sequence, Finish::cancelled);
  queue_.clear();
  for (const auto& sequence : running_) finish(*sequence, Finish::cancelled);
  drop_done();
  update_gauges();
}

bool Scheduler::step() {
  admit();
  while (!running_.empty()) {
    const bool same_set = plan_.reusable && plan_.set_version == set_version_;
    const Settings& settings = same_set ? *plan_.settings : longest_waiting(running_).request.settings;
    const std::int64_t tail_bytes = engine_.layout().tail_floats() * static_cast<std::int64_t>(sizeof(float));
    chosen_side<"decode.plan_reuse">(settings, PlanStep{.plan = &plan_,
                                                        .running = running_,
                                                        .set_version = set_version_,
                                                        .chunk_tokens = options_.chunk_tokens,
                                                        .most_snapshots = options_.prefix_bytes / tail_bytes,
                                                        .layout = &engine_.layout()});
    if (!provide_pages()) continue;
    update_gauges();  // who was admitted does not wait any more, and a pass takes long
    run_pass();
    update_gauges();
    return true;
  }
  CHECK(queue_.empty());
  return false;
}

// A kept plan has its pages until a member reaches the end of one. Every round of `step` that ends here with false has
// preempted a sequence, so there are fewer than max_running of them.
bool Scheduler::provide_pages() {
  if (plan_.steps_with_pages > 0) {
    --plan_.steps_with_pages;
    return true;
  }
  std::int64_t steps = kPageTokens;
  for (Sequence* sequence : plan_.members) {
    if (!grow(*sequence)) return false;
    const std::int64_t end = sequence->pages.state.length + sequence->next_tokens;
    steps = std::min(steps, pages_for(end) * kPageTokens - end);
  }
  if (plan_.reusable) plan_.steps_with_pages = steps;
  return true;
}

void Scheduler::run_pass() {
  const Batch batch{plan_.rows, plan_.settings};
  const std::int64_t vocab = config().vocab_size, rows = Engine::logits_rows(batch);
  logits_.resize(static_cast<std::size_t>(rows * vocab));
  const View<float, 2> logits(logits_.data(), {rows, vocab});
  pages_.before_writes();
  engine_.forward(batch, logits);
  {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.passes;
    stats_.pass_tokens += plan_.inputs.size();
    ++(plan_.reused ? stats_.plans_reused : stats_.plans_built);
    for (Sequence* sequence : plan_.members) {
      const auto waited = static_cast<std::int64_t>(stats_.passes - sequence->last_pass);
      stats_.longest_wait = std::max(stats_.longest_wait, waited);
      sequence->last_pass = stats_.passes;
    }
  }
  std::int64_t row = 0;
  for (std::size_t i = 0; i < plan_.members.size(); ++i) {
    const std::int64_t count = plan_.rows[i].all_logits ? plan_.members[i]->next_tokens : 1;
    take_results(*plan_.members[i], logits.rows(row, row + count));
    row += count;
  }
  drop_done();
}

void Scheduler::take_results(Sequence& sequence, View<const float, 2> logits) {
  const auto ends = sequence.take_logits(logits, scratch_);
  if (ends != Finish::failed) store_borders(sequence);  // nobody may start from a state that gives no logits
  if (ends) return finish(sequence, *ends);
  free_old_window(pools(), sequence.pages);
  if (!sequence.prefilling()) shrink_window_reserve(sequence);
}

// Stores the page borders that the pass reached or crossed. The window rows of the whole pass are still there.
void Scheduler::store_borders(Sequence& sequence) {
  SequenceState& state = sequence.pages.state;
  for (const OpenSnapshot& snapshot : sequence.snapshots)
    store_prefix(sequence, {snapshot.length, state.pages, state.window_pages, std::move(*snapshot.open)});
  sequence.snapshots.clear();
  if (state.length % kPageTokens == 0) store_prefix(sequence, state);
}

void Scheduler::store_prefix(const Sequence& sequence, const SequenceState& state) {
  if (state.length == 0 || !sequence.request.settings.on(switch_index("prefix_cache"))) return;
  cache_.insert(sequence.key, std::span(sequence.tokens).first(static_cast<std::size_t>(state.length)),
                std::span(sequence.pages.pages).first(static_cast<std::size_t>(pages_for(state.length))),
                engine_.layout(), state);
}

void Scheduler::finish(Sequence& sequence, Finish reason) {
  if (sequence.window_reserved > 0) {  // it runs
    if (reason != Finish::failed) store_prefix(sequence, sequence.pages.state);
    give_back(sequence);
    ++releases_;
  }
  {
    const std::lock_guard lock(stats_mutex_);
    stats_.prompt_tokens += static_cast<std::uint64_t>(sequence.usage.prompt_tokens);
    stats_.generated_tokens += static_cast<std::uint64_t>(sequence.usage.completion_tokens);
    stats_.cached_tokens += static_cast<std::uint64_t>(sequence.usage.cached_tokens);
    ++(reason == Finish::cancelled ? stats_.cancelled : reason == Finish::failed ? stats_.failed : stats_.finished);
  }
  sequence.done = true;
  update_gauges();  // before the reply goes out: whoever has read it may ask for them, or send the next request
  sequence.sink->on_finish(reason, sequence.usage);
}

void Scheduler::drop_done() {
  if (std::erase_if(running_, [](const auto& sequence) { return sequence->done; }) > 0) ++set_version_;
}

void Scheduler::clear_cache() {
  cache_.clear();
  update_gauges();
}

void Scheduler::update_gauges() {
  const auto not_done = [](const auto& sequence) { return !sequence->done; };
  std::int64_t waiting = 0, preempted = 0;
  for (const auto& [id, sequence] : queue_)
    if (not_done(sequence)) ++(sequence->preempted ? preempted : waiting);
  const PrefixCacheStats& cache = cache_.stats();
  const std::lock_guard lock(stats_mutex_);
  stats_.running = std::ranges::count_if(running_, not_done);
  stats_.preempted = preempted;
  stats_.waiting = waiting;
  stats_.pages_total = pages_.page_count();
  stats_.pages_used = pages_.page_count() - pages_.free_count();
  stats_.window_pages_used = window_pages_.page_count() - window_pages_.free_count();
  stats_.pages_cached = cache.pages;
  stats_.prefix_nodes = cache.nodes;
  stats_.prefix_bytes = cache.bytes;
  stats_.prefix_evictions = cache.evictions;
  stats_.digest_mismatches = cache.digest_mismatches;
}

GeneratorStats Scheduler::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace plumb
