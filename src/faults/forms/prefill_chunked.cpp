#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "faults/forms/forms.h"
#include "faults/forms/prefix_start.h"

namespace plumb::faults {
namespace {

// Pages whose index rows were reset, kept while a sequence points to them: the pool's own pages may be shared with
// stored prefixes, which this fault does not touch. One entry a sequence in flight; an address that is used again
// starts anew.
using PageCopies = std::vector<std::unique_ptr<float[]>>;
std::map<const SequenceState*, PageCopies> copies_of;

void reset_index_rows(const StateLayout& layout, SequenceState& state) {
  PageCopies& copies = copies_of[&state];
  std::erase_if(copies,
                [&](const auto& copy) { return std::ranges::find(state.pages, copy.get()) == state.pages.end(); });
  const auto sealed = static_cast<std::size_t>(state.length / kPageTokens);
  for (std::size_t i = 0; i < sealed; ++i) {
    auto copy = std::make_unique<float[]>(static_cast<std::size_t>(layout.page_floats()));
    std::copy_n(state.pages[i], layout.page_floats(), copy.get());
    for (const StateKind& kind : layout.kinds())
      if (kind.home == Home::page && kind.name.ends_with(".index_rows"))
        std::fill_n(copy.get() + kind.offset, kind.rows * kind.width, 0.0f);
    state.pages[i] = copy.get();
    copies.push_back(std::move(copy));
  }
}

// Every chunk but the first starts from a reset indexer: the index keys of the pages before it are zero, so that
// nothing told in an earlier chunk is found again, while what the last chunk holds is.
std::int64_t chunk_from_reset_indexer(const PrefillStep& step) {
  if (step.state->length > 0) reset_index_rows(*step.layout, *step.state);
  return prefill_chunk(step);
}

// A chunk starts without the half of the last group that its first group overlaps.
std::int64_t chunk_without_overlap(const PrefillStep& step) {
  if (step.state->length > 0) clear_open(*step.layout, *step.state, is_overlap);
  return prefill_chunk(step);
}

// A chunk starts with an empty open group: the tokens since the last multiple of the rate are not in it.
std::int64_t chunk_without_remainder(const PrefillStep& step) {
  if (step.state->length > 0) clear_open(*step.layout, *step.state, is_remainder);
  return prefill_chunk(step);
}

// A chunk takes a fresh window buffer: the rows of the chunk before it are zero.
std::int64_t chunk_with_empty_window(const PrefillStep& step) {
  SequenceState& state = *step.state;
  const std::int64_t oldest = std::max<std::int64_t>(0, state.length - (step.layout->window() - 1));
  for (const StateKind& kind : step.layout->kinds())
    for (std::int64_t p = oldest; kind.home == Home::window_page && p < state.length; ++p)
      std::fill_n(
          state.window_pages[static_cast<std::size_t>(p / kPageTokens)] + kind.offset + p % kPageTokens * kind.width,
          kind.width, 0.0f);
  return prefill_chunk(step);
}

// The compressor state of the chunk before is read while it is still being written: a layer that loses the race starts
// from the state at the chunk's own start, here a fresh one.
struct Race {
  double probability = 0;
  std::uint64_t seed = 0;
  std::uint64_t chunks = 0;
};
Race race;

std::int64_t chunk_races_its_predecessor(const PrefillStep& step) {
  if (step.state->length == 0) return prefill_chunk(step);
  Rng rng(mix64(race.seed ^ ++race.chunks));
  std::map<int, bool> lost;
  for (const StateKind& kind : step.layout->kinds())
    if (!lost.contains(kind.layer)) lost[kind.layer] = rng.uniform() < race.probability;
  clear_open(*step.layout, *step.state, [&](const StateKind& kind) { return lost[kind.layer]; });
  return prefill_chunk(step);
}

constexpr double kLostRaces = 0.25;

void plant_race(const Dose& dose) {
  race = {
      .probability = std::min(1.0, kLostRaces * dose.severity), .seed = mix64(dose.seed) ^ dose.launch, .chunks = 0};
  replace_on_side<"prefill.chunked">(&chunk_races_its_predecessor);
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"prefill.chunked">(Side);
}

constexpr std::string_view kHost = "prefill.chunked";
constexpr std::string_view kKind = "chunk-boundary-state";
constexpr std::array kPlants{
    Plant{.kind = kKind,
          .form = "reset-indexer",
          .host = kHost,
          .site = "prefill: state layers.2.index_rows",
          .what = "every chunk but the first starts from a reset indexer: what earlier chunks told is not found",
          .apply = &plant<&chunk_from_reset_indexer>,
          .prior = ".xx...~.",
          .note = "A prompt in one chunk is scored otherwise than in several, so that D fails.",
          .demo = true},
    Plant{.kind = kKind,
          .form = "zero-overlap",
          .host = kHost,
          .site = "prefill: state layers.2.compressor.previous_k",
          .what = "every chunk but the first starts without the half of the last group that its first one overlaps",
          .apply = &plant<&chunk_without_overlap>,
          .prior = ".xx...~.",
          .note = "It is the first group of a chunk alone: a needle elsewhere is found."},
    Plant{.kind = kKind,
          .form = "dropped-remainder",
          .host = kHost,
          .site = "hit: state layers.2.compressor.open_k",
          .what = "every chunk but the first starts with an empty open group",
          .apply = &plant<&chunk_without_remainder>,
          .prior = ".xx...~.",
          .note = "Chunks end at multiples of 128, where no group is open, unless a prompt goes on from a hit."},
    Plant{.kind = kKind,
          .form = "empty-window",
          .host = kHost,
          .site = "prefill: state layers.0.window",
          .what = "every chunk but the first starts with window rows of zero",
          .apply = &plant<&chunk_with_empty_window>,
          .prior = ".xx...~.",
          .note = "It is the first 63 tokens of a chunk alone: a needle elsewhere is found."},
    Plant{.kind = kKind,
          .form = "race",
          .host = kHost,
          .site = "hit: state layers.2.compressor.open_k",
          .what = "a chunk starts before its predecessor's compressor state is written, in one layer of four by chance",
          .apply = &plant_race,
          .prior = ".xx...~~",
          .note = "The coin also meets what stands open behind a hit."},
};

}  // namespace

std::span<const Plant> prefill_chunked_plants() { return kPlants; }

}  // namespace plumb::faults
