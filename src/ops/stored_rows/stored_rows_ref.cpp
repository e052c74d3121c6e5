#include <algorithm>
#include <cstring>

#include "base/isa.h"
#include "ops/stored_rows/stored_rows.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

constexpr float kLeastAmax = 1e-4f;

[[gnu::always_inline]] inline void decode_body(const std::uint8_t* codes, std::int64_t count, float scale, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = e4m3_to_f32(codes[i]) * scale;
}
void decode_baseline(const std::uint8_t* codes, std::int64_t count, float scale, float* out) {
  decode_body(codes, count, scale, out);
}
PLUMB_TARGET_AVX2 void decode_avx2(const std::uint8_t* codes, std::int64_t count, float scale, float* out) {
  decode_body(codes, count, scale, out);
}
PLUMB_TARGET_AVX512 void decode_avx512(const std::uint8_t* codes, std::int64_t count, float scale, float* out) {
  decode_body(codes, count, scale, out);
}
void decode(const std::uint8_t* codes, std::int64_t count, float scale, float* out) {
  switch (best_isa()) {
    case Isa::avx512:
      return decode_avx512(codes, count, scale, out);
    case Isa::avx2:
      return decode_avx2(codes, count, scale, out);
    case Isa::baseline:
      return decode_baseline(codes, count, scale, out);
  }
}

// The bytes of a stored row behind its leading f32 words.
std::uint8_t* bytes_after(float* row, std::int64_t words) { return reinterpret_cast<std::uint8_t*>(row + words); }

void encode_key(const float* x, std::int64_t width, float* row) {
  const float scale = std::max(finite_amax({x, static_cast<std::size_t>(width)}), kLeastAmax) / kE4m3Max;
  std::memset(row, 0, static_cast<std::size_t>(row_words(RowFormat::fp8_key, width, 0)) * sizeof(float));
  row[0] = scale;
  std::uint8_t* codes = bytes_after(row, 1);
  for (std::int64_t i = 0; i < width; ++i) codes[i] = f32_to_e4m3(x[i] / scale);
}

void decode_key(const float* row, std::int64_t width, float* out) {
  decode(reinterpret_cast<const std::uint8_t*>(row + 1), width, row[0], out);
}

void encode_kv(const float* x, std::int64_t width, std::int64_t kept, float* row) {
  const std::int64_t coded = width - kept;
  std::memset(row, 0, static_cast<std::size_t>(row_words(RowFormat::fp8_kv, width, kept)) * sizeof(float));
  std::copy_n(x + coded, kept, row);
  std::uint8_t* codes = bytes_after(row, kept);
  std::uint8_t* scales = codes + coded;
  for (std::int64_t begin = 0; begin < coded; begin += kKvGroup) {
    const std::int64_t count = std::min(kKvGroup, coded - begin);
    const float amax = std::max(finite_amax({x + begin, static_cast<std::size_t>(count)}), kLeastAmax);
    const std::uint8_t scale = e8m0_ceil(amax / kE4m3Max);
    scales[begin / kKvGroup] = scale;
    for (std::int64_t i = begin; i < begin + count; ++i) codes[i] = f32_to_e4m3(x[i] / e8m0_to_f32(scale));
  }
}

void decode_kv(const float* row, std::int64_t width, std::int64_t kept, float* out) {
  const std::int64_t coded = width - kept;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(row + kept);
  for (std::int64_t begin = 0; begin < coded; begin += kKvGroup)
    decode(codes + begin, std::min(kKvGroup, coded - begin), e8m0_to_f32(codes[coded + begin / kKvGroup]), out + begin);
  std::copy_n(row, kept, out + coded);
}

template <class Encode>
void store_each(const StoreRows& a, RowFormat format, Encode&& encode) {
  CHECK(a.rows.format == format && a.x.extent(1) == a.rows.width && a.rows.kept <= a.rows.width);
  for (std::int64_t i = 0; i < a.x.extent(0); ++i) encode(a.x.row(i), a.rows.row(a.first + i));
}

}  // namespace

void store_rows_ref(const StoreRows& a) {
  store_each(a, RowFormat::f32, [&](const float* x, float* row) { std::copy_n(x, a.rows.width, row); });
}

void store_keys_fp8(const StoreRows& a) {
  store_each(a, RowFormat::fp8_key, [&](const float* x, float* row) { encode_key(x, a.rows.width, row); });
}

void store_kv_fp8(const StoreRows& a) {
  store_each(a, RowFormat::fp8_kv, [&](const float* x, float* row) { encode_kv(x, a.rows.width, a.rows.kept, row); });
}

void load_row(const PagedRows& rows, std::int64_t n, float* out) {
  switch (rows.format) {
    case RowFormat::f32:
      std::copy_n(rows.row(n), rows.width, out);
      return;
    case RowFormat::fp8_key:
      return decode_key(rows.row(n), rows.width, out);
    case RowFormat::fp8_kv:
      return decode_kv(rows.row(n), rows.width, rows.kept, out);
  }
}

const float* load_rows(const PagedRows& rows, std::int64_t first, std::int64_t count, float* scratch) {
  if (count == 0) return scratch;
  const bool one_page = first / rows.rows_per_page == (first + count - 1) / rows.rows_per_page;
  if (rows.format == RowFormat::f32 && one_page) return rows.row(first);
  for (std::int64_t i = 0; i < count; ++i) load_row(rows, first + i, scratch + i * rows.width);
  return scratch;
}

}  // namespace plumb
