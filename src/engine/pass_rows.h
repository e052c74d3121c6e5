#pragma once

#include <algorithm>

#include "engine/pass.h"

namespace plumb {

/// Rows that are not worth a thread of their own, and the row tile of the matrix product.
inline constexpr std::int64_t kRowGrain = 8;

template <class Body>
void Pass::each_rows(std::int64_t rows, Body&& body) {
  executor_.parallel_for((rows + kRowGrain - 1) / kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    body(begin * kRowGrain, std::min(end * kRowGrain, rows));
  });
}

template <class Body>
void Pass::each_part(std::int64_t most, bool in_order, Body&& body) {
  std::vector<Part> parts;
  for (const Sequence& sequence : sequences_)
    for (std::int64_t i = 0; i < sequence.rows; i += most)
      parts.push_back({&sequence, sequence.first_row + i, sequence.first_row + std::min(i + most, sequence.rows)});
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(parts[static_cast<std::size_t>(i)]);
  };
  if (in_order)
    run(0, static_cast<std::int64_t>(parts.size()));
  else
    executor_.parallel_for(static_cast<std::int64_t>(parts.size()), run);
}

}  // namespace plumb
