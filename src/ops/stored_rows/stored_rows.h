#pragma once

#include <cstdint>

#include "base/view.h"
#include "ops/paged_rows.h"
#include "switches/on_side.h"

namespace plumb {

/// Stores row first + i = x[i, :] in the format of `rows`.
///
/// x [count, width] f32, rounded as the format says; every reader sees what is stored, the pass that stored it too.
struct StoreRows {
  View<const float, 2> x;
  std::int64_t first;
  PagedRows rows;
};
/// Format f32: a copy.
void store_rows_ref(const StoreRows& a);
/// Format fp8_key: scale = max(amax, 1e-4) / 448 in f32, codes E4M3 of x / scale.
/// Source: model specification 4.2 (index key page, FP8) and 6 (idx.fmt).
void store_keys_fp8(const StoreRows& a);
/// Format fp8_kv: for each group of 64 of the first width - kept values scale = the smallest power of two not below
/// max(amax, 1e-4) / 448, codes E4M3 of x / scale; the last `kept` values as they are.
/// Source: model specification 2.3 (kv64) and 4.2; the order of bytes in a row is ours.
void store_kv_fp8(const StoreRows& a);

/// Rows first .. first + count - 1 as f32 [count][width]: the stored rows themselves when the format is f32 and they
/// lie in one page, else `scratch`, filled with their values: E4M3 code times scale, rounded to f32 once.
const float* load_rows(const PagedRows& rows, std::int64_t first, std::int64_t count, float* scratch);
/// Row n's values to out [width].
void load_row(const PagedRows& rows, std::int64_t n, float* out);

template <>
struct Sides<"indexer.fp8_keys"> {
  static constexpr auto* off = &store_rows_ref;
  static constexpr auto* on = &store_keys_fp8;
};
template <>
struct Sides<"kv.fp8"> {
  static constexpr auto* off = &store_rows_ref;
  static constexpr auto* on = &store_kv_fp8;
};

}  // namespace plumb
