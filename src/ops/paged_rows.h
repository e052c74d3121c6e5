#pragma once

#include <cstdint>
#include <span>

namespace plumb {

/// How a row of state is stored, in whole 4-byte words; `width` values, of which the last `kept` are rotary.
enum class RowFormat : std::uint8_t {
  f32,      // the values
  fp8_key,  // one f32 scale, then E4M3 codes
  fp8_kv,   // the `kept` rotary values as f32, then the others as E4M3 codes, then an E8M0 scale for each 64 of them
};

/// Values that share one scale in fp8_kv: dims 0..63, 64..127, ...; the last group may be shorter.
inline constexpr std::int64_t kKvGroup = 64;

/// Words of one stored row. A row whose bytes do not fill its last word ends in zero bytes.
inline std::int64_t row_words(RowFormat format, std::int64_t width, std::int64_t kept) {
  const std::int64_t coded = width - kept;
  switch (format) {
    case RowFormat::f32:
      return width;
    case RowFormat::fp8_key:
      return 1 + (width + 3) / 4;
    case RowFormat::fp8_kv:
      return kept + (coded + (coded + kKvGroup - 1) / kKvGroup + 3) / 4;
  }
  return width;
}

/// Rows of `width` values in the pages of a sequence: row n is row n % rows_per_page of page n / rows_per_page, which
/// starts `offset` words into the page. Somebody else owns the pages; a page that no reader needs may be null.
struct PagedRows {
  std::span<float* const> pages;
  std::int64_t offset = 0;
  std::int64_t rows_per_page = 1;
  std::int64_t width = 0;
  RowFormat format = RowFormat::f32;
  std::int64_t kept = 0;

  std::int64_t words() const { return row_words(format, width, kept); }
  /// The stored words of row n: its values when the format is f32, else bytes for load_rows.
  float* row(std::int64_t n) const {
    return pages[static_cast<std::size_t>(n / rows_per_page)] + offset + n % rows_per_page * words();
  }
};

}  // namespace plumb
