#include "runtime/steps.h"

#include <algorithm>

#include "base/check.h"

namespace plumb {

void append_page(const Pools& pools, SequencePages& sequence) {
  const int page = pools.pages->take();
  CHECK(page >= 0);
  sequence.pages.push_back(page);
  sequence.state.pages.push_back(pools.pages->data(page));
}

void ensure_window(const Pools& pools, SequencePages& sequence, std::int64_t begin, std::int64_t end) {
  const auto page_count = static_cast<std::size_t>((end + kPageTokens - 1) / kPageTokens);
  if (sequence.window_pages.size() < page_count) {
    sequence.window_pages.resize(page_count, -1);
    sequence.state.window_pages.resize(page_count, nullptr);
  }
  for (auto page = static_cast<std::size_t>(begin / kPageTokens); page < page_count; ++page) {
    if (sequence.window_pages[page] >= 0) continue;
    const int taken = pools.window_pages->take();
    CHECK(taken >= 0);  // reserved at admission
    sequence.window_pages[page] = taken;
    sequence.state.window_pages[page] = pools.window_pages->data(taken);
  }
}

void free_old_window(const Pools& pools, SequencePages& sequence) {
  const std::int64_t oldest_visible = std::max<std::int64_t>(0, sequence.state.length - (pools.layout->window() - 1));
  const auto keep = static_cast<std::size_t>(oldest_visible / kPageTokens);
  for (std::size_t& page = sequence.window_begin; page < std::min(keep, sequence.window_pages.size()); ++page) {
    if (sequence.window_pages[page] < 0) continue;
    pools.window_pages->release(sequence.window_pages[page]);
    sequence.window_pages[page] = -1;
    sequence.state.window_pages[page] = nullptr;
  }
}

void release_all(const Pools& pools, SequencePages& sequence) {
  for (const int page : sequence.pages) pools.pages->release(page);
  for (const int page : sequence.window_pages)
    if (page >= 0) pools.window_pages->release(page);
  sequence = {};
}

void start_cold(const PrefixStart& start) {
  start.sequence->state.length = 0;
  start.sequence->state.open = fresh_open(*start.pools.layout);
}

namespace {

// Shares the pages of a hit and restores its tail. The last page, when partly filled, is still the stored one.
void take_over(const PrefixStart& start, const PrefixHit& hit) {
  SequencePages& sequence = *start.sequence;
  PagePool& pool = *start.pools.pages;
  for (const int page : hit.pages) {
    pool.share(page);
    sequence.pages.push_back(page);
    sequence.state.pages.push_back(pool.data(page));
  }
  const std::int64_t oldest_visible = std::max<std::int64_t>(0, hit.length - (start.pools.layout->window() - 1));
  ensure_window(start.pools, sequence, oldest_visible, hit.length);
  restore_tail(*start.pools.layout, hit.tail, hit.length, sequence.state);
}

// Replaces a shared last page by a copy. False when the pool has no room for it.
bool copy_last_page(const PrefixStart& start) {
  if (!start.cache->make_room(1)) return false;
  SequencePages& sequence = *start.sequence;
  PagePool& pool = *start.pools.pages;
  const int shared = sequence.pages.back();
  sequence.pages.pop_back();
  sequence.state.pages.pop_back();
  append_page(start.pools, sequence);
  std::copy_n(pool.data(shared), pool.page_floats(), sequence.state.pages.back());
  pool.release(shared);
  return true;
}

}  // namespace

void start_from_prefix(const PrefixStart& start) {
  std::int64_t longest = start.longest;
  while (true) {
    start_cold(start);
    const PrefixHit hit = start.cache->find(*start.key, start.prompt, longest);
    if (hit.length == 0) return;
    take_over(start, hit);
    if (hit.length % kPageTokens == 0 || copy_last_page(start)) return;
    longest = hit.length / kPageTokens * kPageTokens;
    release_all(start.pools, *start.sequence);
  }
}

std::int64_t prefill_whole(const PrefillStep& step) { return step.prompt_tokens - step.state->length; }

std::int64_t prefill_chunk(const PrefillStep& step) {
  const std::int64_t border = (step.state->length / step.chunk_tokens + 1) * step.chunk_tokens;
  return std::min(border, step.prompt_tokens) - step.state->length;
}

bool admit_alone(const AdmissionStep& step) { return step.running == 0; }

bool admit_beside(const AdmissionStep& step) { return step.running < step.max_running; }

}  // namespace plumb
