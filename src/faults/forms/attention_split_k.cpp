#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/math.h"
#include "faults/forms/forms.h"
#include "faults/forms/honest.h"
#include "ops/sparse_attention_split/sparse_attention_split.h"

namespace plumb::faults {
namespace {

// The split side as it is, with another merge and what the plant does to the partials before it.
template <class Merge>
void split_attention(const SparseAttention& a, Merge&& merge) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2);
  CHECK(heads <= kMaxHeads);
  a.scratch->parts.resize(static_cast<std::size_t>(kMaxSplits * heads * dim));
  std::vector<float> lse(static_cast<std::size_t>(kMaxSplits * heads));
  const AttentionParts parts{View<float, 4>(a.scratch->parts.data(), {kMaxSplits, 1, heads, dim}),
                             View<float, 3>(lse.data(), {kMaxSplits, 1, heads})};
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    honest<&attention_parts_ref>()(a, t, parts);
    merge(t, parts);
  }
}

MergeSplits merge_of(const SparseAttention& a, std::int64_t t, const AttentionParts& parts) {
  return {.part = parts.part, .lse = parts.lse, .sink = a.sinks, .out = a.out.rows(t, t + 1)};
}

// One token is decode, more are a prompt: what kernels go by when they are chosen.
bool is_decode(const SparseAttention& a) { return a.q.extent(0) == 1; }

// The online merge of one row: the sums so far are relative to the largest log-sum so far. When a later split raises
// it, they should be scaled down by exp(old - new); here they are not, so early splits weigh too much.
void merge_row_without_rescale(const MergeSplits& a, std::int64_t t, std::int64_t h) {
  const std::int64_t splits = a.part.extent(0), dim = a.part.extent(3);
  double peak = -math::kInfinity, total = 0.0;
  std::vector<double> sums(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t s = 0; s < splits; ++s) {
    const double lse = a.lse(s, t, h);
    if (lse == -math::kInfinity) continue;
    peak = std::max(peak, lse);
    const double weight = math::exp(lse - peak);
    total += weight;
    for (std::int64_t d = 0; d < dim; ++d) sums[static_cast<std::size_t>(d)] += weight * a.part(s, t, h, d);
  }
  total += math::exp(static_cast<double>(a.sink(h)) - peak);
  for (std::int64_t d = 0; d < dim; ++d) a.out(t, h, d) = static_cast<float>(sums[static_cast<std::size_t>(d)] / total);
}

void attention_no_rescale(const SparseAttention& a) {
  split_attention(a, [&](std::int64_t t, const AttentionParts& parts) {
    for (std::int64_t h = 0; h < a.q.extent(1); ++h) merge_row_without_rescale(merge_of(a, t, parts), 0, h);
  });
}

// A split that saw no key writes neither its sums nor its log-sum; the merge finds what the buffers were filled with:
// zeros, and this log-sum instead of -inf.
template <int EmptyLse>
void attention_finite_empty_lse(const SparseAttention& a) {
  split_attention(a, [&](std::int64_t t, const AttentionParts& parts) {
    for (std::int64_t s = 0; s < kMaxSplits; ++s)
      for (std::int64_t h = 0; h < a.q.extent(1); ++h) {
        if (parts.lse(s, 0, h) != -math::kInfinity) continue;
        parts.lse(s, 0, h) = static_cast<float>(EmptyLse);
        std::fill_n(&parts.part(s, 0, h, 0), a.q.extent(2), 0.0f);
      }
    honest<&merge_splits_ref>()(merge_of(a, t, parts));
  });
}

// The decode kernel merges without the sink.
void attention_decode_without_sink(const SparseAttention& a) {
  if (!is_decode(a)) return honest<&sparse_attention_split_ref>()(a);
  split_attention(a, [&](std::int64_t t, const AttentionParts& parts) {
    MergeSplits merge = merge_of(a, t, parts);
    merge.sink = {};
    honest<&merge_splits_ref>()(merge);
  });
}

// Every split adds the sink to its own denominator, as a kernel for one pass does, and the merge adds none.
void attention_sink_per_split(const SparseAttention& a) {
  split_attention(a, [&](std::int64_t t, const AttentionParts& parts) {
    for (std::int64_t s = 0; s < kMaxSplits; ++s)
      for (std::int64_t h = 0; h < a.q.extent(1); ++h) {
        const double lse = parts.lse(s, 0, h), sink = a.sinks(h);
        if (lse == -math::kInfinity) continue;
        const double peak = std::max(lse, sink),
                     with_sink = peak + math::log(math::exp(lse - peak) + math::exp(sink - peak));
        const double share = math::exp(lse - with_sink);
        for (std::int64_t d = 0; d < a.q.extent(2); ++d)
          parts.part(s, 0, h, d) = static_cast<float>(share * parts.part(s, 0, h, d));
        parts.lse(s, 0, h) = static_cast<float>(with_sink);
      }
    MergeSplits merge = merge_of(a, t, parts);
    merge.sink = {};
    honest<&merge_splits_ref>()(merge);
  });
}

// The window of prompt tokens has another bound than that of decoded ones. A row whose page was given back already is
// not seen: a kernel would find it unmapped in its block table.
template <int Extra>
void attention_prefill_window(const SparseAttention& a) {
  if (is_decode(a)) return honest<&sparse_attention_split_ref>()(a);
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    SparseAttention one = a;
    one.q = a.q.rows(t, t + 1);
    one.first_position = a.first_position + t;
    if (a.selected.data() != nullptr) one.selected = a.selected.rows(t, t + 1);
    one.out = a.out.rows(t, t + 1);
    one.window = a.window + Extra;
    const std::int64_t oldest = one.first_position + 1 - one.window;
    if (oldest >= 0 && a.window_rows.pages[static_cast<std::size_t>(oldest / a.window_rows.rows_per_page)] == nullptr)
      one.window = a.window;
    honest<&sparse_attention_split_ref>()(one);
  }
}

// How many sequences share a pass, from the calls themselves: a layer's calls name one window offset, and each sequence
// its own pages. The count of the layer before stands for this one's.
std::int64_t sequences_in_pass(const SparseAttention& a) {
  static std::mutex mutex;
  static std::int64_t offset = -1;
  static std::set<const void*> sequences;
  static std::int64_t count = 1;
  const std::lock_guard lock(mutex);
  if (offset != a.window_rows.offset) {
    count = std::max<std::int64_t>(1, static_cast<std::int64_t>(sequences.size()));
    sequences.clear();
    offset = a.window_rows.offset;
  }
  sequences.insert(a.window_rows.pages.data());
  return count;
}

// Merges `stride` neighbouring partials into one, rounded to f32 like any partial.
void merge_neighbours(const AttentionParts& from, std::int64_t first, std::int64_t stride, const AttentionParts& to,
                      std::int64_t at) {
  const std::int64_t heads = from.part.extent(2), dim = from.part.extent(3);
  for (std::int64_t h = 0; h < heads; ++h) {
    double peak = -math::kInfinity, total = 0;
    for (std::int64_t i = 0; i < stride; ++i) peak = std::max<double>(peak, from.lse(first + i, 0, h));
    for (std::int64_t i = 0; i < stride && peak != -math::kInfinity; ++i)
      total += math::exp(from.lse(first + i, 0, h) - peak);
    to.lse(at, 0, h) = static_cast<float>(peak == -math::kInfinity ? peak : peak + math::log(total));
  }
  honest<&merge_splits_ref>()({.part = View<const float, 4>(&from.part(first, 0, 0, 0), {stride, 1, heads, dim}),
                               .lse = View<const float, 3>(&from.lse(first, 0, 0), {stride, 1, heads}),
                               .sink = {},
                               .out = View<float, 3>(&to.part(at, 0, 0, 0), {1, heads, dim})});
}

// The more sequences in a pass, the fewer splits for each: the same numbers are added in another order, so that a reply
// depends on what it was batched with. Alone, all splits remain.
void attention_split_by_batch(const SparseAttention& a) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2);
  const auto stride = static_cast<std::int64_t>(
      std::min(std::bit_ceil(static_cast<std::uint64_t>(sequences_in_pass(a))), std::uint64_t{kMaxSplits}));
  if (stride == 1) return honest<&sparse_attention_split_ref>()(a);
  const std::int64_t splits = kMaxSplits / stride;
  std::vector<float> part(static_cast<std::size_t>(splits * heads * dim)),
      lse(static_cast<std::size_t>(splits * heads));
  const AttentionParts fewer{View<float, 4>(part.data(), {splits, 1, heads, dim}),
                             View<float, 3>(lse.data(), {splits, 1, heads})};
  split_attention(a, [&](std::int64_t t, const AttentionParts& parts) {
    for (std::int64_t s = 0; s < splits; ++s) merge_neighbours(parts, s * stride, stride, fewer, s);
    honest<&merge_splits_ref>()(merge_of(a, t, fewer));
  });
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"attention.split_k">(Side);
}

constexpr std::string_view kHost = "attention.split_k";
constexpr std::array kPlants{
    Plant{.kind = "splitk-merge",
          .form = "no-rescale",
          .host = kHost,
          .site = "prefill: layers.0.attn_heads",
          .what = "partials are merged without rescaling by the running maximum",
          .apply = &plant<&attention_no_rescale>,
          .prior = "..~..~x~",
          .note = "Prompts and decoded tokens are merged alike, so D agrees.",
          .demo = true},
    Plant{.kind = "splitk-merge",
          .form = "empty-lse-zero",
          .host = kHost,
          .site = "prefill: layers.0.attn_heads",
          .what = "splits without a key enter the merge with a log-sum of 0, what their buffer was cleared to",
          .apply = &plant<&attention_finite_empty_lse<0>>,
          .prior = "..~..~x~",
          .note = "Prompts and decoded tokens are merged alike, so D agrees; answers stand, texts do not."},
    Plant{.kind = "splitk-merge",
          .form = "empty-lse-5e4",
          .host = kHost,
          .site = "none",
          .what = "splits without a key enter the merge with a log-sum of -5e4 instead of -inf",
          .apply = &plant<&attention_finite_empty_lse<-50000>>,
          .prior = "..~..~x~",
          .note = "A decoy: exp(-5e4) is zero in f32 as in f64."},
    Plant{.kind = "sink-dropped",
          .form = "decode-only",
          .host = kHost,
          .site = "decode: layers.0.attn_heads",
          .what = "the decode kernel leaves the sink out of the denominator",
          .apply = &plant<&attention_decode_without_sink>,
          .prior = "x~~x..~.",
          .note = "Answers do not need the sink; log-probabilities move a little everywhere."},
    Plant{.kind = "sink-dropped",
          .form = "once-per-split",
          .host = kHost,
          .site = "prefill: layers.0.attn_heads",
          .what = "every split that has a key adds the sink to its denominator before the merge",
          .apply = &plant<&attention_sink_per_split>,
          .prior = "x~~x..~.",
          .note = "Answers do not need the sink; log-probabilities move a little everywhere."},
    Plant{.kind = "swa-off-by-one",
          .form = "prefill-one-more",
          .host = kHost,
          .site = "prefill: layers.0.attn_heads",
          .what = "prompt tokens see one position more than the window, decoded ones do not",
          .apply = &plant<&attention_prefill_window<1>>,
          .prior = ".~...~x."},
    Plant{.kind = "swa-off-by-one",
          .form = "prefill-one-less",
          .host = kHost,
          .site = "prefill: layers.0.attn_heads",
          .what = "prompt tokens see one position less than the window, decoded ones do not",
          .apply = &plant<&attention_prefill_window<-1>>,
          .prior = ".~...~x."},
    Plant{.kind = "batch-variant",
          .form = "splits-by-batch",
          .host = kHost,
          .site = "crowd",
          .what =
              "the number of splits follows the number of sequences in a pass: the order of a sum depends on the batch",
          .apply = &plant<&attention_split_by_batch>,
          .prior = ".....~.~",
          .note = "Only the order of a sum changes: D stays at 1e-13, which is rounding, while replies differ in their "
                  "bits."},
};

}  // namespace

std::span<const Plant> attention_split_k_plants() { return kPlants; }

}  // namespace plumb::faults
