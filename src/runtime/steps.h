#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/state.h"
#include "runtime/page_pool.h"
#include "runtime/prefix_cache.h"
#include "switches/on_side.h"

namespace plumb {

/// The state of a sequence together with the pool pages that hold it.
struct SequencePages {
  SequenceState state;
  std::vector<int> pages;         // pool ids of state.pages
  std::vector<int> window_pages;  // pool ids of state.window_pages, -1 where absent
  std::size_t window_begin = 0;   // window pages before this one are absent
};

/// The pools that sequences draw from.
struct Pools {
  const StateLayout* layout;
  PagePool* pages;
  PagePool* window_pages;
};

/// Pages that cover `tokens` positions.
constexpr std::int64_t pages_for(std::int64_t tokens) { return tokens / kPageTokens + (tokens % kPageTokens != 0); }

/// Appends a page of the pool, which must have a free one.
void append_page(const Pools& pools, SequencePages& sequence);
/// Gives the sequence a window page for every position of [begin, end). The caller has reserved them.
void ensure_window(const Pools& pools, SequencePages& sequence, std::int64_t begin, std::int64_t end);
/// Frees window pages that no later position can see.
void free_old_window(const Pools& pools, SequencePages& sequence);
/// Gives every page back.
void release_all(const Pools& pools, SequencePages& sequence);

/// The first step of a sequence: it has no pages yet; this decides how much of its state is there already.
struct PrefixStart {
  Pools pools;  // the window pages of the sequence are reserved
  PrefixCache* cache;
  const std::string* key;
  std::span<const std::int32_t> prompt;  // the tokens it knows; when it resumes, what it had generated as well
  std::int64_t longest;                  // positions that may be taken over, fewer than there are tokens
  SequencePages* sequence;
};

/// Leaves an empty state: everything is computed. Sets state.length to 0.
void start_cold(const PrefixStart& start);

/// Takes over the longest stored prefix of at most `longest` positions: its full pages are shared, a partly filled last
/// page is copied (no two sequences share an open group), the tail is restored. Sets state.length; the sequence then
/// has the pages of these positions.
void start_from_prefix(const PrefixStart& start);

template <>
struct Sides<"prefix_cache"> {
  static constexpr auto* off = &start_cold;
  static constexpr auto* on = &start_from_prefix;
};

/// A prefill step of a sequence: how many prompt tokens the next forward pass takes.
struct PrefillStep {
  const StateLayout* layout;
  SequenceState* state;  // state->length prompt tokens are done
  std::int64_t prompt_tokens;
  std::int64_t chunk_tokens;
};

/// All that is left.
std::int64_t prefill_whole(const PrefillStep& step);

/// Up to the next multiple of chunk_tokens: chunk borders stand at absolute positions.
std::int64_t prefill_chunk(const PrefillStep& step);

template <>
struct Sides<"prefill.chunked"> {
  static constexpr auto* off = &prefill_whole;
  static constexpr auto* on = &prefill_chunk;
};

/// Whether the sequence at the head of the queue may start now. None starts beside one that runs alone.
struct AdmissionStep {
  std::int64_t running;
  std::int64_t max_running;
};

/// Only when no other runs.
bool admit_alone(const AdmissionStep& step);

/// While there are fewer than max_running.
bool admit_beside(const AdmissionStep& step);

template <>
struct Sides<"batch.continuous"> {
  static constexpr auto* off = &admit_alone;
  static constexpr auto* on = &admit_beside;
};

}  // namespace plumb
