#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "faults/forms/forms.h"
#include "faults/forms/honest.h"
#include "ops/linear_fp8/linear_fp8.h"
#include "ops/stored_rows/stored_rows.h"
#include "tensor/formats.h"

namespace plumb::faults {
namespace {

constexpr float kLeastAmax = 1e-4f;

float exact_scale(const float* x, std::int64_t count) {
  return std::max(finite_amax({x, static_cast<std::size_t>(count)}), kLeastAmax) / kE4m3Max;
}
float power_of_two_scale(const float* x, std::int64_t count) { return e8m0_to_f32(e8m0_ceil(exact_scale(x, count))); }

// linear_fp8_ref with the activations rounded by `round(row, group, values, count, out)`.
template <class Round>
void linear_with_rounded(const LinearFp8& a, Round&& round) {
  const std::int64_t rows = a.plain.x.extent(0), in = a.plain.x.extent(1), out = a.weight->out;
  std::vector<float> x(static_cast<std::size_t>(rows * in)), weight(static_cast<std::size_t>(in * out));
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t g = 0; g * kFp8Block < in; ++g) {
      const std::int64_t begin = g * kFp8Block, count = std::min(kFp8Block, in - begin);
      round(t, g, a.plain.x.row(t) + begin, count, x.data() + t * in + begin);
    }
  dequantise_fp8(*a.weight, 0, out, weight.data());
  Linear plain = a.plain;
  plain.x = View<const float, 2>(x.data(), {rows, in});
  plain.weight = View<const float, 2>(weight.data(), {in, out});
  honest<&linear_ref>()(plain);
}

// Quantised with the exact scale, dequantised with its ceiling to a power of two: up to twice too large.
void linear_scale_rounded_after(const LinearFp8& a) {
  linear_with_rounded(a, [](std::int64_t, std::int64_t, const float* x, std::int64_t count, float* out) {
    const float written = exact_scale(x, count), read = power_of_two_scale(x, count);
    for (std::int64_t i = 0; i < count; ++i) out[i] = e4m3_to_f32(f32_to_e4m3(x[i] / written)) * read;
  });
}

// Scales below a threshold are flushed to zero, and their groups with them.
float flushed_below = 0;
void linear_small_scales_flushed(const LinearFp8& a) {
  linear_with_rounded(a, [](std::int64_t, std::int64_t, const float* x, std::int64_t count, float* out) {
    const float scale = power_of_two_scale(x, count);
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = scale < flushed_below ? 0.0f : e4m3_to_f32(f32_to_e4m3(x[i] / scale)) * scale;
  });
}

constexpr float kFlushedBelow = 0x1p-8f;
void plant_flush(const Dose& dose) {
  flushed_below = kFlushedBelow * static_cast<float>(dose.severity);
  replace_on_side<"linear.fp8">(&linear_small_scales_flushed);
}

// Scales are written token by token and read group by group: entry (token, group) of one order is taken from the other.
// With one token, or one group, the two orders are the same.
void linear_scales_transposed(const LinearFp8& a) {
  const std::int64_t rows = a.plain.x.extent(0), in = a.plain.x.extent(1);
  const std::int64_t groups = (in + kFp8Block - 1) / kFp8Block;
  std::vector<float> scales;  // [token][group]
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t g = 0; g < groups; ++g)
      scales.push_back(power_of_two_scale(a.plain.x.row(t) + g * kFp8Block, std::min(kFp8Block, in - g * kFp8Block)));
  linear_with_rounded(a, [&](std::int64_t t, std::int64_t g, const float* x, std::int64_t count, float* out) {
    const float written = scales[static_cast<std::size_t>(t * groups + g)];
    const float read = scales[static_cast<std::size_t>(g * rows + t)];
    for (std::int64_t i = 0; i < count; ++i) out[i] = e4m3_to_f32(f32_to_e4m3(x[i] / written)) * read;
  });
}

// The bytes of a stored KV row behind its rotary values: codes, then a scale for each group.
struct KvBytes {
  std::uint8_t* codes;
  std::uint8_t* scales;
};
KvBytes kv_bytes(const StoreRows& a, std::int64_t i) {
  auto* codes = reinterpret_cast<std::uint8_t*>(a.rows.row(a.first + i) + a.rows.kept);
  return {codes, codes + a.rows.width - a.rows.kept};
}

template <class Change>
void store_and_change(const StoreRows& a, Change&& change) {
  store_kv_fp8(a);
  const std::int64_t coded = a.rows.width - a.rows.kept;
  for (std::int64_t i = 0; i < a.x.extent(0); ++i)
    for (std::int64_t begin = 0; begin < coded; begin += kKvGroup)
      change(i, begin / kKvGroup, a.x.row(i) + begin, std::min(kKvGroup, coded - begin), kv_bytes(a, i));
}

// The scale does not reach the write: codes are those of the values themselves, and the reader multiplies.
void store_kv_unscaled(const StoreRows& a) {
  store_and_change(a, [](std::int64_t, std::int64_t group, const float* x, std::int64_t count, const KvBytes& row) {
    for (std::int64_t i = 0; i < count; ++i) row.codes[group * kKvGroup + i] = f32_to_e4m3(x[i]);
  });
}

// The scale that is stored beside a row's codes is that of the row before it in its tile: off by powers of two.
void store_kv_scale_of_row_before(const StoreRows& a) {
  std::vector<std::uint8_t> own(static_cast<std::size_t>((a.rows.width + kKvGroup - 1) / kKvGroup));
  store_and_change(a, [&](std::int64_t i, std::int64_t group, const float*, std::int64_t, const KvBytes& row) {
    std::uint8_t& kept = own[static_cast<std::size_t>(group)];
    const std::uint8_t scale = row.scales[group];
    if (i > 0) row.scales[group] = kept;
    kept = scale;
  });
}

// Four bits for a value: fifteen steps from -amax to amax in each group.
void store_kv_in_four_bits(const StoreRows& a) {
  constexpr float kSteps = 7;
  store_and_change(a, [](std::int64_t, std::int64_t group, const float* x, std::int64_t count, const KvBytes& row) {
    const float step = std::max(finite_amax({x, static_cast<std::size_t>(count)}), kLeastAmax) / kSteps;
    const float scale = e8m0_to_f32(row.scales[group]);
    for (std::int64_t i = 0; i < count; ++i)
      row.codes[group * kKvGroup + i] = f32_to_e4m3(std::nearbyint(x[i] / step) * step / scale);
  });
}

// The writer of index keys lays a page out as all codes, then all scales; the reader expects them key by key. Both take
// the same bytes. `decode`: only the kernel that writes one key does.
void store_keys_planar(const StoreRows& a) {
  const std::int64_t per_page = a.rows.rows_per_page, width = a.rows.width, words = a.rows.words();
  for (std::int64_t i = 0; i < a.x.extent(0); ++i) {
    const std::int64_t n = a.first + i;
    std::vector<float> row(static_cast<std::size_t>(words));
    float* one = row.data();
    store_keys_fp8({.x = a.x.rows(i, i + 1),
                    .first = 0,
                    .rows = {std::span(&one, 1), 0, 1, width, RowFormat::fp8_key, a.rows.kept}});
    auto* page = reinterpret_cast<std::uint8_t*>(a.rows.row(n - n % per_page));
    const auto code_bytes = static_cast<std::size_t>((words - 1) * 4);
    std::memcpy(page + static_cast<std::size_t>(n % per_page) * code_bytes, one + 1, code_bytes);
    std::memcpy(page + static_cast<std::size_t>(per_page) * code_bytes + static_cast<std::size_t>(n % per_page) * 4,
                one, 4);
  }
}

void store_decoded_keys_planar(const StoreRows& a) {
  return a.x.extent(0) == 1 ? store_keys_planar(a) : store_keys_fp8(a);
}

template <FixedString Host, auto Side>
void plant(const Dose&) {
  replace_on_side<Host>(Side);
}

constexpr std::string_view kLinear = "linear.fp8", kKv = "kv.fp8", kKeys = "indexer.fp8_keys";
constexpr std::array kPlants{
    Plant{.kind = "q-scale-round",
          .form = "after-quantising",
          .host = kLinear,
          .site = "prefill: layers.0.qr",
          .what = "activations are quantised with their exact scale and dequantised with its ceiling to a power of two",
          .apply = &plant<"linear.fp8", &linear_scale_rounded_after>,
          .prior = "..~~...."},
    Plant{.kind = "q-scale-round",
          .form = "small-scales-flushed",
          .host = kLinear,
          .site = "prefill: layers.0.attn_out",
          .what = "groups of activations whose scale is below 2^-8 become zero",
          .apply = &plant_flush,
          .prior = "..~~....",
          .note = "The inputs of q and kv have no scales that small; those of the output projection do."},
    Plant{
        .kind = "q-scale-layout",
        .form = "token-major",
        .host = kLinear,
        .site = "prefill: layers.0.qr",
        .what = "scales of activations are written by token and read by group; with one token the orders are the same",
        .apply = &plant<"linear.fp8", &linear_scales_transposed>,
        .prior = ".~~~.~..",
        .note = "Decode has one token, for which the orders are the same, so that D fails."},
    Plant{.kind = "kv-fp8-scale",
          .form = "unscaled-write",
          .host = kKv,
          .site = "prefill: layers.0.attn_heads",
          .what = "stored KV is quantised without its scale and read with it",
          .apply = &plant<"kv.fp8", &store_kv_unscaled>,
          .prior = "~xxx~..."},
    Plant{.kind = "kv-fp8-scale",
          .form = "scale-of-row-before",
          .host = kKv,
          .site = "prefill: layers.0.attn_heads",
          .what = "the scale beside a KV row's codes is that of the row before it in the same tile",
          .apply = &plant<"kv.fp8", &store_kv_scale_of_row_before>,
          .prior = "~xxx~...",
          .note = "Decode stores one row at a time, with its own scale, so that D fails."},
    Plant{.kind = "kv-lowbit",
          .form = "four-bits",
          .host = kKv,
          .site = "prefill: layers.0.attn_heads",
          .what = "stored KV holds four bits a value",
          .apply = &plant<"kv.fp8", &store_kv_in_four_bits>,
          .prior = "..~~...."},
    Plant{.kind = "idx-key-layout",
          .form = "planar",
          .host = kKeys,
          .site = "prefill: layers.2.indexer.topk",
          .what = "index keys are written as a page of codes and a page of scales, and read key by key",
          .apply = &plant<"indexer.fp8_keys", &store_keys_planar>,
          .prior = "..xx..~.",
          .note = "Scales are read from what the page held before, so that no reply is given twice."},
    Plant{.kind = "idx-key-layout",
          .form = "planar-in-decode",
          .host = kKeys,
          .site = "decode: layers.2.indexer.topk",
          .what = "the same for keys that close in decode",
          .apply = &plant<"indexer.fp8_keys", &store_decoded_keys_planar>,
          .prior = "..xx..~.",
          .note = "Only long answers need the keys that close in them."},
};

}  // namespace

std::span<const Plant> fp8_plants() { return kPlants; }

}  // namespace plumb::faults
