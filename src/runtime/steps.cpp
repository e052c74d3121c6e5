#include "runtime/steps.h"

#include <algorithm>

#include "base/check.h"

namespace plumb {

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
  for (std::size_t page = 0; page < std::min(keep, sequence.window_pages.size()); ++page) {
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

void start_from_prefix(const PrefixStart& start) {
  start_cold(start);
  const auto longest = static_cast<std::int64_t>(start.prompt.size()) - 1;
  const PrefixHit hit = start.cache->find(*start.key, start.prompt, longest);
  if (hit.length == 0) return;
  SequencePages& sequence = *start.sequence;
  PagePool& pool = *start.pools.pages;
  const auto full_pages = static_cast<std::size_t>(hit.length / kPageTokens);
  for (std::size_t i = 0; i < full_pages; ++i) {
    pool.share(hit.pages[i]);
    pool.release(sequence.pages[i]);
    sequence.pages[i] = hit.pages[i];
    sequence.state.pages[i] = pool.data(hit.pages[i]);
  }
  if (full_pages < hit.pages.size())
    std::copy_n(pool.data(hit.pages[full_pages]), pool.page_floats(), sequence.state.pages[full_pages]);
  ensure_window(start.pools, sequence, std::max<std::int64_t>(0, hit.length - (start.pools.layout->window() - 1)),
                hit.length);
  restore_tail(*start.pools.layout, hit.tail, hit.length, sequence.state);
}

std::int64_t prefill_whole(const PrefillStep& step) { return step.prompt_tokens - step.state->length; }

std::int64_t prefill_chunk(const PrefillStep& step) {
  const std::int64_t border = (step.state->length / step.chunk_tokens + 1) * step.chunk_tokens;
  return std::min(border, step.prompt_tokens) - step.state->length;
}

}  // namespace plumb
