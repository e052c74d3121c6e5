#include "ops/stored_rows/stored_rows.h"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "ops/indexer/indexer.h"
#include "ops/sparse_attention/sparse_attention.h"
#include "ops/twin.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Pages of rows_per_page stored rows between two margins, all of it NaN until rows are stored.
struct Pages {
  static constexpr std::int64_t kMargin = 5;
  Pages(RowFormat format, std::int64_t width, std::int64_t kept, std::int64_t rows_per_page, std::int64_t count) {
    rows = {{}, kMargin, rows_per_page, width, format, kept};
    for (std::int64_t page = 0; page <= (count - 1) / rows_per_page; ++page) {
      memory.emplace_back(static_cast<std::size_t>(kMargin + rows_per_page * rows.words() + kMargin), kNan);
      starts.push_back(memory.back().data());
    }
    rows.pages = starts;
  }
  bool margins_intact() const {
    for (const std::vector<float>& page : memory)
      for (std::size_t i = 0; i < kMargin; ++i)
        if (!std::isnan(page[i]) || !std::isnan(page[page.size() - 1 - i])) return false;
    return true;
  }
  PagedRows rows;
  std::vector<std::vector<float>> memory;
  std::vector<float*> starts;
};

// Values of very different sizes from row to row and channel to channel, as norms and rotations leave them.
std::vector<float> rows_of_all_sizes(Rng& rng, std::int64_t rows, std::int64_t width) {
  std::vector<float> x = random_floats(rng, rows * width);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t c = 0; c < width; ++c)
      x[static_cast<std::size_t>(t * width + c)] *=
          static_cast<float>(std::exp2(static_cast<double>(t % 9 - 4) + static_cast<double>(c % 5) - 2.0));
  return x;
}

// The value on the E4M3 grid nearest to x / scale, times scale, found among all codes.
float nearest(float x, float scale) {
  double best = 0, distance = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 256; ++code) {
    const double value = e4m3_to_f32(static_cast<std::uint8_t>(code));
    if (std::isnan(value)) continue;
    const double off = std::abs(value - static_cast<double>(x / scale));
    // Of two that are equally near the even code.
    if (off < distance || (off == distance && code % 2 == 0)) best = value, distance = off;
  }
  return static_cast<float>(best * scale);
}

struct Shape {
  std::int64_t width, kept, rows_per_page, rows, first;
};
class StoredRowsTwin : public testing::TestWithParam<Shape> {};

template <FixedString Name>
void expect_stored(const Shape& s, RowFormat format, std::uint64_t seed) {
  Rng rng{seed};
  Pages pages(format, s.width, s.kept, s.rows_per_page, s.first + s.rows);
  const std::vector<float> x = rows_of_all_sizes(rng, s.rows, s.width);
  // One row at a time or all at once: the same words.
  Pages again(format, s.width, s.kept, s.rows_per_page, s.first + s.rows);
  for (std::int64_t i = 0; i < s.rows; ++i)
    Sides<Name>::on({.x = {x.data() + i * s.width, {1, s.width}}, .first = s.first + i, .rows = again.rows});
  Sides<Name>::on({.x = {x.data(), {s.rows, s.width}}, .first = s.first, .rows = pages.rows});
  Guarded<float> got(s.rows * s.width);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    EXPECT_EQ(std::memcmp(pages.rows.row(s.first + i), again.rows.row(s.first + i),
                          static_cast<std::size_t>(pages.rows.words()) * sizeof(float)),
              0);
    load_row(pages.rows, s.first + i, got.data() + i * s.width);
  }
  EXPECT_TRUE(pages.margins_intact());
  Pages plain(RowFormat::f32, s.width, s.kept, s.rows_per_page, s.first + s.rows);
  Sides<Name>::off({.x = {x.data(), {s.rows, s.width}}, .first = s.first, .rows = plain.rows});
  std::vector<float> want(x.size());
  const float* loaded = load_rows(plain.rows, s.first, s.rows, want.data());
  EXPECT_EQ(std::memcmp(loaded, x.data(), x.size() * sizeof(float)), 0);
  EXPECT_TRUE((static_cast<void>(switch_index(Name.view())), twin(Name.view(), got, x)));
  testing::Test::RecordProperty("nmse", testing::PrintToString(nmse(got.values(), x)));
  EXPECT_LT(pages.rows.words(), plain.rows.words());
}

TEST_P(StoredRowsTwin, KvRowsAreWithinBudgetInAThirdOfTheMemory) {
  expect_stored<"kv.fp8">(GetParam(), RowFormat::fp8_kv, 121);
}
TEST_P(StoredRowsTwin, IndexKeysAreWithinBudgetInAThirdOfTheMemory) {
  expect_stored<"indexer.fp8_keys">(GetParam(), RowFormat::fp8_key, 122);
}
// The release's row and index key, the phantom's (its last group is shorter), one short group, nothing kept.
INSTANTIATE_TEST_SUITE_P(Shapes, StoredRowsTwin,
                         testing::Values(Shape{512, 64, 128, 24, 110}, Shape{128, 64, 32, 70, 3},
                                         Shape{128, 32, 1, 9, 130}, Shape{18, 6, 32, 200, 31},
                                         Shape{130, 0, 16, 100, 15}));

TEST(StoredKv, EveryValueIsTheNearestOfItsGroupsGridAndRotaryOnesAreKept) {
  constexpr std::int64_t kWidth = 110, kKept = 10, kRows = 40;
  Rng rng{123};
  std::vector<float> x = rows_of_all_sizes(rng, kRows, kWidth);
  std::fill_n(x.begin(), kWidth, 0.0f);                                                         // a row of zeros
  for (std::int64_t c = 0; c < kWidth; ++c) x[static_cast<std::size_t>(kWidth + c)] *= 1e-12f;  // below the floor
  x[2 * kWidth] = 448.0f, x[3 * kWidth] = std::nextafter(448.0f, 1e9f);
  Pages pages(RowFormat::fp8_kv, kWidth, kKept, 16, kRows);
  store_kv_fp8({.x = {x.data(), {kRows, kWidth}}, .first = 0, .rows = pages.rows});
  std::vector<float> row(kWidth);
  for (std::int64_t t = 0; t < kRows; ++t) {
    load_row(pages.rows, t, row.data());
    const float* in = x.data() + t * kWidth;
    for (std::int64_t begin = 0; begin < kWidth - kKept; begin += 64) {
      const std::int64_t end = std::min<std::int64_t>(begin + 64, kWidth - kKept);
      float amax = 1e-4f;
      for (std::int64_t c = begin; c < end; ++c) amax = std::max(amax, std::abs(in[c]));
      const auto scale = static_cast<float>(std::exp2(std::ceil(std::log2(static_cast<long double>(amax / 448.0f)))));
      for (std::int64_t c = begin; c < end; ++c) EXPECT_EQ(row[static_cast<std::size_t>(c)], nearest(in[c], scale));
    }
    for (std::int64_t c = kWidth - kKept; c < kWidth; ++c) EXPECT_EQ(row[static_cast<std::size_t>(c)], in[c]);
  }
}

TEST(StoredKeys, HaveOneScaleThatMapsTheLargestValueToTheLargestCode) {
  constexpr std::int64_t kWidth = 33;
  Rng rng{124};
  const std::vector<float> x = random_floats(rng, kWidth, 3.0);
  Pages pages(RowFormat::fp8_key, kWidth, 0, 4, 1);
  store_keys_fp8({.x = {x.data(), {1, kWidth}}, .first = 0, .rows = pages.rows});
  float amax = 0;
  for (const float value : x) amax = std::max(amax, std::abs(value));
  const float scale = amax / 448.0f;
  std::vector<float> row(kWidth);
  load_row(pages.rows, 0, row.data());
  for (std::size_t c = 0; c < kWidth; ++c) EXPECT_EQ(row[c], nearest(x[c], scale)) << c;
}

TEST(StoredRows, WhatIsNotFiniteStaysVisible) {
  for (const RowFormat format : {RowFormat::fp8_kv, RowFormat::fp8_key}) {
    std::vector<float> x(80, 1.0f), row(80);
    x[3] = kNan, x[70] = std::numeric_limits<float>::infinity();
    Pages pages(format, 80, 0, 4, 1);
    const StoreRows args{.x = {x.data(), {1, 80}}, .first = 0, .rows = pages.rows};
    format == RowFormat::fp8_kv ? store_kv_fp8(args) : store_keys_fp8(args);
    load_row(pages.rows, 0, row.data());
    for (std::size_t c = 0; c < 80; ++c) EXPECT_EQ(std::isnan(row[c]), c == 3 || c == 70) << c;
  }
}

// Readers see the stored values: attention and index scores over FP8 rows are, to the bit, those over f32 rows that
// hold what the FP8 rows decode to.
TEST(StoredRows, AttentionReadsTheStoredFormat) {
  constexpr std::int64_t kTokens = 3, kHeads = 2, kDim = 70, kPositions = 150, kRate = 4;
  Rng rng{125};
  const std::vector<float> q = random_floats(rng, kTokens * kHeads * kDim), sinks{0.1f, -0.2f};
  const std::array<std::int64_t, 2> counts{kPositions, kPositions / kRate};
  std::vector<Pages> coded, plain;
  for (const std::int64_t count : counts) {
    const std::int64_t per_page = count == kPositions ? 128 : 32;
    const std::vector<float> x = random_floats(rng, count * kDim);
    Pages& to = coded.emplace_back(RowFormat::fp8_kv, kDim, 6, per_page, count);
    store_kv_fp8({.x = {x.data(), {count, kDim}}, .first = 0, .rows = to.rows});
    Pages& decoded = plain.emplace_back(RowFormat::f32, kDim, 6, per_page, count);
    for (std::int64_t n = 0; n < count; ++n) load_row(to.rows, n, decoded.rows.row(n));
  }
  AttentionScratch scratch;
  const auto attend = [&](std::vector<Pages>& pages) {
    std::vector<float> out(q.size());
    for (Pages& each : pages) each.rows.pages = each.starts;
    sparse_attention_ref({.q = {q.data(), {kTokens, kHeads, kDim}},
                          .scale = 0.1,
                          .first_position = kPositions - kTokens,
                          .window_rows = pages[0].rows,
                          .window = 40,
                          .rows = pages[1].rows,
                          .rate = kRate,
                          .selected = {},
                          .sinks = {sinks.data(), {kHeads}},
                          .out = {out.data(), {kTokens, kHeads, kDim}},
                          .scratch = &scratch});
    return out;
  };
  EXPECT_EQ(attend(coded), attend(plain));
}

TEST(StoredRows, IndexScoresReadTheStoredFormat) {
  constexpr std::int64_t kTokens = 5, kHeads = 3, kDim = 20, kRows = 75, kRate = 4;
  Rng rng{126};
  const std::vector<float> q = random_floats(rng, kTokens * kHeads * kDim), g = random_floats(rng, kTokens * kHeads);
  const std::vector<float> x = random_floats(rng, kRows * kDim);
  Pages coded(RowFormat::fp8_key, kDim, 0, 32, kRows), plain(RowFormat::f32, kDim, 0, 32, kRows);
  store_keys_fp8({.x = {x.data(), {kRows, kDim}}, .first = 0, .rows = coded.rows});
  for (std::int64_t n = 0; n < kRows; ++n) load_row(coded.rows, n, plain.rows.row(n));
  const auto scores = [&](const Pages& pages) {
    std::vector<float> out(kTokens * kRows);
    indexer_scores_ref({.q = {q.data(), {kTokens, kHeads, kDim}},
                        .head_weights = {g.data(), {kTokens, kHeads}},
                        .keys = pages.rows,
                        .first_position = kRows * kRate - kTokens,
                        .rate = kRate,
                        .scores = {out.data(), {kTokens, kRows}}});
    return out;
  };
  EXPECT_EQ(scores(coded), scores(plain));
}

}  // namespace
}  // namespace plumb
