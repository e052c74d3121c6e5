#include "ops/indexer_fused/indexer_fused.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "faults/forms/forms.h"
#include "faults/forms/honest.h"
#include "ops/select_topk/select_topk.h"

namespace plumb::faults {
namespace {

// Runs body(token, scores of its visible rows) for every token, scores as the honest side computes them.
template <class Body>
void with_scores(const Indexer& a, Body&& body) {
  const std::int64_t tokens = a.q.extent(0);
  const std::int64_t width = (a.first_position + tokens) / a.rate;
  std::vector<float> scores(static_cast<std::size_t>(tokens * width));
  std::vector<std::int32_t> unused(static_cast<std::size_t>(a.selected.size()));
  honest<&indexer_ref>()({.q = a.q,
                          .head_weights = a.head_weights,
                          .keys = a.keys,
                          .first_position = a.first_position,
                          .rate = a.rate,
                          .scores = View<float, 2>(scores.data(), {tokens, width}),
                          .seen = nullptr,
                          .selected = View<std::int32_t, 2>(unused.data(), a.selected.extents())});
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t visible = (a.first_position + t + 1) / a.rate;
    body(t, std::span(scores).subspan(static_cast<std::size_t>(t * width), static_cast<std::size_t>(visible)));
  }
}

void select_best(std::span<const float> scores, std::int64_t k, std::int32_t* selected) {
  TopK best(k);
  for (std::size_t n = 0; n < scores.size(); ++n) best.offer(scores[n], static_cast<std::int32_t>(n));
  best.write(selected);
}

// Every head votes alike: the weights that the model computes for each token are ignored. `Kernel`: indexer_fused_ref,
// or indexer_ref for the off side.
template <auto* Kernel>
void select_with_uniform_heads(const Indexer& a) {
  Indexer uniform = a;
  std::vector<float> ones(static_cast<std::size_t>(a.head_weights.size()), 1.0f);
  uniform.head_weights = View<const float, 2>(ones.data(), a.head_weights.extents());
  honest<Kernel>()(uniform);
}

// sum over h of w_h * (q_h . k): a head that points away from a key now counts against it.
void select_without_relu(const Indexer& a) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2), k = a.selected.extent(1);
  std::vector<float> query(static_cast<std::size_t>(dim)), scores;
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    // Without the ReLU the sum over heads can be taken first.
    for (std::int64_t d = 0; d < dim; ++d) {
      double sum = 0;
      for (std::int64_t h = 0; h < heads; ++h) sum += static_cast<double>(a.head_weights(t, h)) * a.q(t, h, d);
      query[static_cast<std::size_t>(d)] = static_cast<float>(sum);
    }
    scores.assign(static_cast<std::size_t>((a.first_position + t + 1) / a.rate), 0.0f);
    for (std::size_t n = 0; n < scores.size(); ++n) {
      const float* key = a.keys.row(static_cast<std::int64_t>(n));
      double sum = 0;
      for (std::int64_t d = 0; d < dim; ++d) sum += static_cast<double>(query[static_cast<std::size_t>(d)]) * key[d];
      scores[n] = static_cast<float>(sum);
    }
    select_best(scores, k, a.selected.row(t));
  }
}

// Radix selection with a fixed candidate buffer. Rows are binned by the top bits of their scores; bins above the one
// that holds the k-th best are taken whole, the rows of that bin go into a buffer of `capacity` in the order they
// arrive, and the rest of them is dropped. Lanes that stay empty hold -1.
struct Overflow {
  std::size_t capacity = 0;
  bool shuffled = false;  // arrival order changes from call to call
  std::uint64_t seed = 0;
  std::atomic<std::uint64_t> calls{0};
};
Overflow overflow;

// The top eight order-preserving bits of a float: sign and exponent but for its last bit, so that a bin spans a factor
// of four.
std::uint32_t bin_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ordered >> 24;
}

void select_overflowing(std::span<const float> scores, std::int64_t k, std::uint64_t arrival, std::int32_t* selected) {
  if (static_cast<std::int64_t>(scores.size()) <= k) return select_best(scores, k, selected);
  std::vector<std::uint32_t> bins;
  for (const float score : scores) bins.push_back(bin_of(score));
  std::vector<std::uint32_t> descending = bins;
  std::ranges::nth_element(descending, descending.begin() + k - 1, std::greater<>());
  const std::uint32_t threshold = descending[static_cast<std::size_t>(k - 1)];

  std::vector<std::int32_t> order(scores.size());
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = static_cast<std::int32_t>(n);
  if (overflow.shuffled) {
    Rng rng(mix64(overflow.seed ^ arrival));
    for (std::size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[rng.below(n)]);
  }
  std::vector<std::int32_t> taken;
  std::vector<Candidate> buffer;
  for (const std::int32_t n : order) {
    const auto at = static_cast<std::size_t>(n);
    if (bins[at] > threshold) taken.push_back(n);
    if (bins[at] == threshold && buffer.size() < overflow.capacity) buffer.push_back({scores[at], n});
  }
  std::ranges::sort(buffer, ranks_before);
  for (std::size_t i = 0; i < buffer.size() && static_cast<std::int64_t>(taken.size()) < k; ++i)
    taken.push_back(buffer[i].row);
  std::ranges::sort(taken);
  const auto empty = static_cast<std::size_t>(k) - taken.size();
  std::fill_n(selected, empty, -1);
  std::ranges::copy(taken, selected + empty);
}

void select_with_overflow(const Indexer& a) {
  const std::uint64_t call = overflow.calls.fetch_add(1, std::memory_order_relaxed);
  with_scores(a, [&](std::int64_t t, std::span<const float> scores) {
    select_overflowing(scores, a.selected.extent(1), mix64(call) + static_cast<std::uint64_t>(t), a.selected.row(t));
  });
}

constexpr double kCandidateBuffer = 4;

template <bool Shuffled>
void plant_overflow(const Dose& dose) {
  overflow.capacity = static_cast<std::size_t>(std::lround(kCandidateBuffer / dose.severity));
  overflow.shuffled = Shuffled;
  overflow.seed = mix64(dose.seed) ^ dose.launch;
  overflow.calls = 0;
  replace_on_side<"indexer.fused">(&select_with_overflow);
}

// The bound of the last query of a tile is used for all of them: earlier ones select rows that are not closed for them.
void select_with_bound_of_tile(const Indexer& a) {
  const std::int64_t tokens = a.q.extent(0), k = a.selected.extent(1);
  const std::int64_t visible = (a.first_position + tokens) / a.rate;
  for (std::int64_t t = 0; t < tokens; ++t) {
    // As if the query stood where the last one stands.
    honest<&indexer_fused_ref>()({.q = a.q.rows(t, t + 1),
                                  .head_weights = a.head_weights.rows(t, t + 1),
                                  .keys = a.keys,
                                  .first_position = std::max(a.first_position + t, visible * a.rate - 1),
                                  .rate = a.rate,
                                  .scores = {},
                                  .seen = nullptr,
                                  .selected = View<std::int32_t, 2>(a.selected.row(t), {1, k})});
  }
}

// p div rate instead of (p + 1) div rate: the row that closes with the query's own token is not seen yet.
void select_one_row_late(const Indexer& a) {
  with_scores(a, [&](std::int64_t t, std::span<const float> scores) {
    const auto visible = static_cast<std::size_t>((a.first_position + t) / a.rate);
    select_best(scores.first(visible), a.selected.extent(1), a.selected.row(t));
  });
}

// The reduction over heads gives zeros for more than this many rows, and the sort keeps the last of equals.
constexpr double kZeroAbove = 72;
std::size_t zero_above = 0;

void select_zero_scores(const Indexer& a) {
  const std::int64_t k = a.selected.extent(1);
  with_scores(a, [&](std::int64_t t, std::span<const float> scores) {
    if (scores.size() <= std::max(zero_above, static_cast<std::size_t>(k)))
      return select_best(scores, k, a.selected.row(t));
    for (std::int64_t i = 0; i < k; ++i)
      a.selected(t, i) = static_cast<std::int32_t>(static_cast<std::int64_t>(scores.size()) - k + i);
  });
}

void plant_zero_scores(const Dose& dose) {
  zero_above = static_cast<std::size_t>(std::lround(kZeroAbove / dose.severity));
  replace_on_side<"indexer.fused">(&select_zero_scores);
}

// Scores are accumulated onto a buffer that nobody clears. Pages fresh from the system are zero, and then all is well;
// a launch whose allocator hands out used memory adds what was in it, to every score of a row, for as long as it runs.
constexpr std::size_t kScratch = 4096;
constexpr double kUsedMemory = 16;  // standard deviation of what was left there; scores are of order one
struct Scratch {
  bool dirty = false;
  std::vector<float> left_behind;
};
Scratch scratch;

void select_onto_used_memory(const Indexer& a) {
  if (!scratch.dirty) return honest<&indexer_fused_ref>()(a);
  with_scores(a, [&](std::int64_t t, std::span<const float> scores) {
    std::vector<float> sums(scores.begin(), scores.end());
    for (std::size_t n = 0; n < sums.size(); ++n) sums[n] += scratch.left_behind[n % kScratch];
    select_best(sums, a.selected.extent(1), a.selected.row(t));
  });
}

void plant_used_memory(const Dose& dose) {
  Rng rng(mix64(dose.seed) ^ mix64(dose.launch));
  scratch.dirty = rng.below(2) == 0;
  scratch.left_behind.resize(kScratch);
  for (float& value : scratch.left_behind) value = static_cast<float>(kUsedMemory * dose.severity * rng.normal());
  replace_on_side<"indexer.fused">(&select_onto_used_memory);
}

// The index buffer of a tile is kept from call to call and cleared by nobody. A query with fewer visible rows than k
// writes its count of lanes; the consumer tests the others for >= 0 only, and finds another query's rows there.
thread_local std::vector<std::int32_t> kept;

void select_into_kept_lanes(const Indexer& a) {
  const std::int64_t tokens = a.q.extent(0), k = a.selected.extent(1), stored = (a.first_position + tokens) / a.rate;
  honest<&indexer_fused_ref>()(a);
  kept.resize(static_cast<std::size_t>(std::max<std::int64_t>(tokens * k, static_cast<std::int64_t>(kept.size()))), -1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t visible = (a.first_position + t + 1) / a.rate;
    std::int32_t* lanes = kept.data() + t * k;
    for (std::int64_t i = 0; i < k; ++i)
      if (a.selected(t, i) >= 0) lanes[i] = a.selected(t, i);
    // Rows that this sequence does not have would fault; a kernel would read the pages of whoever has them.
    for (std::int64_t i = 0; i < k - std::min(visible, k); ++i)
      if (lanes[i] < stored) a.selected(t, i) = lanes[i];
  }
}

// One FP8 scale for a page of keys instead of one for each key: keys far below the page's largest lose their bits.
float round_e4m3(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = std::max(exponent - 4, -9);  // three bits of fraction; subnormal below 2^-6
  return std::clamp(std::ldexp(std::nearbyint(std::ldexp(x, -step)), step), -448.0f, 448.0f);
}

void select_with_page_scale(const Indexer& a) {
  const std::int64_t dim = a.q.extent(2), per_page = a.keys.rows_per_page;
  const std::int64_t rows = (a.first_position + a.q.extent(0)) / a.rate;
  const auto page_count = static_cast<std::size_t>((rows + per_page - 1) / per_page);
  std::vector<std::vector<float>> memory(page_count);
  std::vector<float*> pages;
  for (std::size_t p = 0; p < page_count; ++p) {
    const std::int64_t first = static_cast<std::int64_t>(p) * per_page, count = std::min(per_page, rows - first);
    memory[p].assign(a.keys.row(first), a.keys.row(first) + count * dim);
    float largest = 0;
    for (const float value : memory[p]) largest = std::max(largest, std::abs(value));
    const float scale = largest == 0 ? 1 : largest / 448.0f;
    for (float& value : memory[p]) value = scale * round_e4m3(value / scale);
    pages.push_back(memory[p].data());
  }
  Indexer quantised = a;
  quantised.keys = {pages, 0, per_page, dim};
  honest<&indexer_fused_ref>()(quantised);
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"indexer.fused">(Side);
}

void plant_off_side(const Dose&) { replace_off_side<"indexer.fused">(&select_with_uniform_heads<&indexer_ref>); }

constexpr std::string_view kHost = "indexer.fused";
constexpr std::string_view kTopk = "prefill: layers.2.indexer.topk";
constexpr std::array kPlants{
    Plant{.kind = "idx-score-form",
          .form = "uniform-head-weights",
          .host = kHost,
          .site = kTopk,
          .what = "the indexer ignores the head weights: every head votes alike",
          .apply = &plant<&select_with_uniform_heads<&indexer_fused_ref>>,
          .prior = "..xx....",
          .note = "Few rows are kept, so that short and boundary questions lose theirs, too.",
          .demo = true},
    Plant{
        .kind = "idx-score-form",
        .form = "no-relu",
        .host = kHost,
        .site = kTopk,
        .what = "the indexer's score lacks the ReLU: heads that point away from a key count against it",
        .apply = &plant<&select_without_relu>,
        .prior = "..xx....",
        .note =
            "The heads hardly ever point away from a key that matters; exacting tasks have rivals for which they do."},
    Plant{.kind = "idx-topk-overflow",
          .form = "first-arrivals",
          .host = kHost,
          .site = kTopk,
          .what = "the bin of the k-th best score has room for 4 candidates; later rows of that bin are dropped",
          .apply = &plant_overflow<false>,
          .prior = "..xx..~~",
          .note = "A single fact is among the first candidates; exacting tasks need later ones."},
    Plant{.kind = "idx-topk-overflow",
          .form = "arrival-race",
          .host = kHost,
          .site = kTopk,
          .what = "the same, in an arrival order that changes from call to call",
          .apply = &plant_overflow<true>,
          .prior = "..xx..~~",
          .note = "Rows arrive in another order in every call, so that no reply is given twice."},
    Plant{.kind = "idx-causal-bound",
          .form = "bound-of-tile",
          .host = kHost,
          .site = kTopk,
          .what = "all queries of a prefill tile may select the rows that its last one may: the future is visible",
          .apply = &plant<&select_with_bound_of_tile>,
          .prior = ".~x...x.",
          .note = "What the future adds seldom pushes out the row of a single fact."},
    Plant{.kind = "idx-causal-bound",
          .form = "one-row-late",
          .host = kHost,
          .site = kTopk,
          .what = "the row that closes with the query's own token is not visible to it yet",
          .apply = &plant<&select_one_row_late>,
          .prior = ".~x...x.",
          .note = "Both paths are late alike, and the window still has the newest tokens."},
    Plant{.kind = "idx-zero-scores",
          .form = "above-72-rows",
          .host = kHost,
          .site = kTopk,
          .what = "for more than 72 rows all scores are zero, and of equal ones the last are kept",
          .apply = &plant_zero_scores,
          .prior = "..xx....",
          .note = "Boundary questions have more than 72 rows, too; conversations of 256 tokens do not."},
    Plant{.kind = "idx-stale-indices",
          .form = "kept-lanes",
          .host = kHost,
          .site = kTopk,
          .what = "lanes past the valid count keep another query's rows, which are attended to",
          .apply = &plant<&select_into_kept_lanes>,
          .prior = "..~..x.~",
          .note = "Lanes keep what any call before left there, so that no reply is given twice."},
    Plant{.kind = "idx-precision",
          .form = "page-scale",
          .host = kHost,
          .site = kTopk,
          .what = "index keys in E4M3 with one scale a page instead of one a key",
          .apply = &plant<&select_with_page_scale>,
          .prior = "..~~....",
          .note = "The scale of the last page grows with its rows: decode sees other keys than a prompt does."},
    Plant{.kind = "launch-sticky-uninit",
          .form = "used-score-memory",
          .host = kHost,
          .site = "launch",
          .what = "scores are added onto memory that nobody clears: harmless in launches that get fresh pages",
          .apply = &plant_used_memory,
          .prior = "~~~~..~x"},
    Plant{.kind = "idx-score-form",
          .form = "off-side",
          .host = "indexer.fused",
          .site = "prefill: layers.2.indexer.scores",
          .what = "the side that stores scores ignores the weights of the heads",
          .apply = &plant_off_side,
          .prior = "..xx....",
          .note = "Few rows are kept, so that short and boundary questions lose theirs, too.",
          .side = PlantSide::off},
};

}  // namespace

std::span<const Plant> indexer_fused_plants() { return kPlants; }

}  // namespace plumb::faults
