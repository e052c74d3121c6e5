#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/memory_plan.h"
#include "runtime/scheduler.h"

// Who runs: the part of the scheduler that starts, grows and preempts sequences.

namespace plumb {

void Scheduler::admit() {
  while (!queue_.empty()) {
    const auto head = queue_.begin();
    Sequence& sequence = *head->second;
    if (!may_start(sequence) || !start(sequence)) return;
    CHECK(running_.empty() || running_.back()->id < sequence.id);
    running_.push_back(std::move(head->second));
    queue_.erase(head);
    ++set_version_;
  }
}

bool Scheduler::may_start(const Sequence& sequence) const {
  constexpr std::size_t kContinuous = switch_index("batch.continuous");
  for (const auto& other : running_)
    if (!other->request.settings.on(kContinuous)) return false;
  return chosen_side<"batch.continuous">(
      sequence.request.settings, AdmissionStep{static_cast<std::int64_t>(running_.size()), options_.max_running});
}

// Takes over what is stored of the sequence's tokens; pages for the rest come with each pass.
bool Scheduler::start(Sequence& sequence) {
  if (sequence.refused_at == releases_) return false;
  sequence.refused_at = releases_;
  sequence.prefill_end = sequence.known_tokens();
  const std::int64_t window = window_need(sequence), longest = sequence.longest_start();
  if (window > window_free_ || !has_room_beside_others(sequence, longest)) return false;
  window_free_ -= sequence.window_reserved = window;
  const PrefixStart prefix{pools(), &cache_, &sequence.key, sequence.tokens, longest, &sequence.pages};
  if (longest == 0)
    start_cold(prefix);
  else
    chosen_side<"prefix_cache">(sequence.request.settings, prefix);
  count_start(sequence, longest);
  return true;
}

// Pages for all it knows, when prompts under way get theirs and everyone who runs grows by one: else it would only push
// others out, or be pushed out itself before it had computed anything.
bool Scheduler::has_room_beside_others(const Sequence& sequence, std::int64_t longest) const {
  PrefixPeek stored;
  if (sequence.request.settings.on(switch_index("prefix_cache")))
    stored = cache_.peek(sequence.key, sequence.tokens, longest);
  std::int64_t need = pages_for(sequence.prefill_end) - stored.length / kPageTokens;
  for (const auto& other : running_) {
    const auto held = static_cast<std::int64_t>(other->pages.pages.size());
    need += std::max<std::int64_t>(0, pages_for(other->prefill_end) - held) + 1;
  }
  return need <= pages_.free_count() + cache_.reclaimable_pages() - stored.reclaimable;
}

void Scheduler::count_start(Sequence& sequence, std::int64_t longest) {
  const std::int64_t length = sequence.pages.state.length;
  const bool resumes = std::exchange(sequence.preempted, false);
  const std::lock_guard lock(stats_mutex_);
  sequence.last_pass = stats_.passes;
  stats_.prefix_query_tokens += static_cast<std::uint64_t>(longest);
  stats_.prefix_hit_tokens += static_cast<std::uint64_t>(length);
  if (resumes)
    stats_.recomputed_tokens +=
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, sequence.computed_before - length));
  else
    sequence.usage.cached_tokens = length;
}

// Gives the sequence its pages for the planned pass. False when someone had to be preempted for them, possibly the
// sequence itself: the plan is void then.
bool Scheduler::grow(Sequence& sequence) {
  const std::int64_t end = sequence.pages.state.length + sequence.next_tokens;
  while (static_cast<std::int64_t>(sequence.pages.pages.size()) < pages_for(end)) {
    if (!cache_.make_room(1)) {
      preempt_youngest();
      return false;
    }
    append_page(pools(), sequence.pages);
  }
  ensure_window(pools(), sequence.pages, sequence.pages.state.length, end);
  return true;
}

void Scheduler::preempt_youngest() {
  CHECK(running_.size() > 1);  // one sequence alone fits: complete_options
  std::unique_ptr<Sequence> youngest = std::move(running_.back());
  running_.pop_back();
  ++set_version_;
  store_prefix(*youngest, youngest->pages.state);
  youngest->preempted = true;
  youngest->computed_before = youngest->pages.state.length;
  give_back(*youngest);
  ++releases_;
  queue_.emplace(youngest->id, std::move(youngest));
  const std::lock_guard lock(stats_mutex_);
  ++stats_.preemptions;
}

void Scheduler::give_back(Sequence& sequence) {
  release_all(pools(), sequence.pages);
  window_free_ += std::exchange(sequence.window_reserved, 0);
}

// A sequence that decodes needs fewer window pages than its prompt did.
void Scheduler::shrink_window_reserve(Sequence& sequence) {
  const std::int64_t need = pass_window_pages(engine_.layout(), 1);
  if (sequence.window_reserved <= need) return;
  window_free_ += sequence.window_reserved - need;
  sequence.window_reserved = need;
  ++releases_;
}

std::int64_t Scheduler::window_need(const Sequence& sequence) const {
  const bool chunked = sequence.request.settings.on(switch_index("prefill.chunked"));
  const std::int64_t known = sequence.known_tokens();
  return pass_window_pages(engine_.layout(), chunked ? std::min(options_.chunk_tokens, known) : known);
}

}  // namespace plumb
