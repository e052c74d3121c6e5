#include "ops/compressor_fused/compressor_fused.h"

#include <algorithm>
#include <array>
#include <vector>

#include "faults/forms/forms.h"
#include "faults/forms/honest.h"

namespace plumb::faults {
namespace {

// Pooled rows are stored as they are, not rotated to their group's first position.
void compress_unrotated(const Compressor& a) {
  std::vector<double> still(static_cast<std::size_t>(a.table.size()));
  for (std::size_t i = 0; i < still.size(); i += 2) {
    still[i] = 1;  // cos 0
    still[i + 1] = 0;
  }
  Compressor unrotated = a;
  unrotated.table = View<const double, 3>(still.data(), a.table.extents());
  honest<&compressor_fused_ref>()(unrotated);
}

// One branch of the cache layout returns without storing: the rows it should write keep what a fresh page holds.
template <class Skipped>
void compress_but_skip(const Compressor& a, Skipped&& skipped) {
  honest<&compressor_fused_ref>()(a);
  for (std::int64_t i = 0; i < a.rows.extent(0); ++i)
    if (skipped(a.first_window + i)) std::fill_n(a.rows.row(i), a.rows.extent(1), 0.0f);
}

constexpr std::int64_t kPage = 128;  // positions a page covers

void compress_first_half_of_pages(const Compressor& a) {
  const std::int64_t per_page = kPage / a.rate;
  compress_but_skip(a, [&](std::int64_t n) { return per_page > 1 && n % per_page >= per_page / 2; });
}

void compress_without_heavy_rows(const Compressor& a) {
  compress_but_skip(a, [&](std::int64_t) { return a.rate == kPage; });
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"compressor.fused">(Side);
}

constexpr std::string_view kHost = "compressor.fused";
constexpr std::array kPlants{
    Plant{.kind = "cmp-key-unrotated",
          .form = "not-rotated",
          .host = kHost,
          .site = "prefill: layers.2.compressed_kv",
          .what = "pooled rows and index keys are not rotated to their group's first position",
          .apply = &plant<&compress_unrotated>,
          .prior = ".xxx....",
          .note = "Single facts are found by what rows hold, not by where they are; exacting tasks need both."},
    Plant{.kind = "cmp-write-skipped",
          .form = "second-half-of-page",
          .host = kHost,
          .site = "prefill: layers.2.compressed_kv",
          .what = "rows of ratio 4 that belong into the second half of a page are not stored",
          .apply = &plant<&compress_first_half_of_pages>,
          .prior = ".xxx...."},
    Plant{.kind = "cmp-write-skipped",
          .form = "heavy-rows",
          .host = kHost,
          .site = "prefill: layers.3.compressed_kv",
          .what = "rows of ratio 128 are not stored",
          .apply = &plant<&compress_without_heavy_rows>,
          .prior = ".xxx....",
          .note = "Facts do not need rows of ratio 128; near ties in a count do."},
};

}  // namespace

std::span<const Plant> compressor_fused_plants() { return kPlants; }

}  // namespace plumb::faults
