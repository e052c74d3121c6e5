#pragma once

#include <algorithm>

#include "ops/sparse_attention/sparse_attention.h"

namespace plumb {

/// For backend cpu: makes scratch->rows the keys of token t, each where it lies (f32) or read into scratch->keys, and
/// scratch->weights large enough for their scores. place(key) tells where in the list a key goes. Returns their number.
template <class Place>
std::int64_t gather_keys(const SparseAttention& a, std::int64_t t, Place&& place) {
  const std::int64_t heads = a.q.extent(1), dim = a.q.extent(2);
  AttentionScratch& s = *a.scratch;
  std::int64_t count = 0;
  for_each_key(a, t, [&](const AttentionKey&) { ++count; });
  const auto keys = static_cast<std::size_t>(count);
  if (s.rows.size() < keys) s.rows.resize(2 * keys);
  if (a.window_rows.format != RowFormat::f32 || a.rows.format != RowFormat::f32)
    s.keys.resize(std::max(s.keys.size(), keys * static_cast<std::size_t>(dim)));
  s.weights.resize(std::max(s.weights.size(), static_cast<std::size_t>(heads) * (keys + 15)));
  for_each_key(a, t, [&](const AttentionKey& key) {
    const std::int64_t at = place(key);
    if (key.rows->format == RowFormat::f32) {
      s.rows[static_cast<std::size_t>(at)] = key.rows->row(key.row);
    } else {
      key.load(s.keys.data() + at * dim);
      s.rows[static_cast<std::size_t>(at)] = s.keys.data() + at * dim;
    }
  });
  return count;
}

}  // namespace plumb
