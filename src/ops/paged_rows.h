#pragma once

#include <cstdint>
#include <span>

namespace plumb {

/// Rows of `width` f32 in the pages of a sequence: row n is row n % rows_per_page of page n / rows_per_page, which
/// starts `offset` floats into the page. Somebody else owns the pages; a page that no reader needs may be null.
struct PagedRows {
  std::span<float* const> pages;
  std::int64_t offset = 0;
  std::int64_t rows_per_page = 1;
  std::int64_t width = 0;

  float* row(std::int64_t n) const {
    return pages[static_cast<std::size_t>(n / rows_per_page)] + offset + n % rows_per_page * width;
  }
};

}  // namespace plumb
