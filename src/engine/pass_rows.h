#pragma once

#include <algorithm>

#include "engine/pass.h"

namespace plumb {

/// Rows that are not worth a thread of their own, and the row tile of the matrix product.
inline constexpr std::int64_t kRowGrain = 8;
/// Outputs that are not worth a thread of their own: four registers of the widest instruction set.
inline constexpr std::int64_t kOutputGrain = 64;

template <class Body>
void Pass::each_rows(std::int64_t rows, Body&& body) {
  executor_.parallel_for((rows + kRowGrain - 1) / kRowGrain, [&](std::int64_t begin, std::int64_t end) {
    body(begin * kRowGrain, std::min(end * kRowGrain, rows));
  });
}

template <class Body>
void Pass::each_tile(std::int64_t rows, std::int64_t outputs, Body&& body) {
  const std::int64_t threads = executor_.threads();
  if (rows >= kRowGrain * threads || threads == 1)
    return each_rows(rows, [&](std::int64_t begin, std::int64_t end) { body(begin, end, OutputRange()); });
  const std::int64_t share = (outputs + threads - 1) / threads;
  const std::int64_t width = (share + kOutputGrain - 1) / kOutputGrain * kOutputGrain;
  executor_.parallel_for((outputs + width - 1) / width, [&](std::int64_t begin, std::int64_t end) {
    body(0, rows, OutputRange{begin * width, std::min(end * width, outputs)});
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
