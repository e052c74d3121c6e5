#pragma once

#include <cstdint>

#include "model/config.h"

namespace plumb {

/// What a forward pass costs at least: what its formulas say, whoever computes them.
struct PassCost {
  double operations;    // multiplications and additions of matrix products, attention and index scores, two a product
  double weight_bytes;  // f32 weights that are read at least once, and the stored rows that are read
};

/// The cost of a pass over `sequences` sequences, each with `rows` new tokens behind `context` earlier ones, logits for
/// the last token of each. Choices of experts are taken as independent and uniform, so that of E experts
/// E * (1 - (1 - k/E)^tokens) are read.
struct PassShape {
  std::int64_t sequences;
  std::int64_t rows;
  std::int64_t context;
};
PassCost pass_cost(const ModelConfig& config, const PassShape& shape);

}  // namespace plumb
