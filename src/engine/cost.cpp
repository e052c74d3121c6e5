#include "engine/cost.h"

#include <algorithm>
#include <cmath>

namespace plumb {
namespace {

// Products of a token with weights, each weight once.
double attention_weights(const ModelConfig& c, const LayerConfig& layer) {
  const auto d = static_cast<double>(c.hidden_size), q = static_cast<double>(c.q_lora_rank);
  const auto heads = static_cast<double>(c.heads * c.head_dim), low = static_cast<double>(c.o_groups * c.o_lora_rank);
  double weights = d * q + q * heads + d * static_cast<double>(c.head_dim);
  weights += heads * static_cast<double>(c.o_lora_rank) + low * d;
  if (layer.attention == AttentionKind::sliding) return weights;
  const bool sparse = layer.attention == AttentionKind::compressed_sparse;
  weights += 2 * d * static_cast<double>((sparse ? 2 : 1) * c.head_dim);
  if (!sparse) return weights;
  return weights + 4 * d * static_cast<double>(c.index_head_dim) +
         q * static_cast<double>(c.index_heads * c.index_head_dim) + d * static_cast<double>(c.index_heads);
}

double hyper_connection_weights(const ModelConfig& c) {
  const auto n = static_cast<double>(c.hc_mult);
  return n * static_cast<double>(c.hidden_size) * n * (2 + n);
}

double expert_weights(const ModelConfig& c) {
  return 3 * static_cast<double>(c.hidden_size) * static_cast<double>(c.moe_intermediate);
}

// Keys and index rows that the token at `position` reads in a layer.
struct Seen {
  double keys, index_rows;
};
Seen seen_by(const ModelConfig& c, const LayerConfig& layer, std::int64_t position) {
  const auto window = static_cast<double>(std::min(c.window, position + 1));
  if (layer.attention == AttentionKind::sliding) return {window, 0};
  const std::int64_t rows = (position + 1) / layer.compress_rate;
  if (layer.attention == AttentionKind::heavily_compressed) return {window + static_cast<double>(rows), 0};
  return {window + static_cast<double>(std::min(rows, c.index_topk)), static_cast<double>(rows)};
}

}  // namespace

PassCost pass_cost(const ModelConfig& c, const PassShape& shape) {
  const auto tokens = static_cast<double>(shape.sequences * shape.rows),
             sequences = static_cast<double>(shape.sequences);
  const double logits = static_cast<double>(c.hidden_size * c.vocab_size);
  double per_token = 0, read = logits, attention = 0;
  const auto experts = static_cast<double>(c.experts), chosen = static_cast<double>(c.experts_per_token);
  const double touched = experts * (1 - std::pow(1 - chosen / experts, tokens));
  for (const LayerConfig& layer : c.layers) {
    const double dense = attention_weights(c, layer) + 2 * hyper_connection_weights(c) +
                         static_cast<double>(c.hidden_size) * experts +
                         static_cast<double>(c.shared_experts) * expert_weights(c);
    per_token += dense + chosen * expert_weights(c);
    read += dense + touched * expert_weights(c);
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      const Seen seen = seen_by(c, layer, shape.context + i);
      // A key is multiplied with the query and weighed as a value.
      attention += 2 * seen.keys * static_cast<double>(c.heads * c.head_dim) +
                   seen.index_rows * static_cast<double>(c.index_heads * c.index_head_dim);
      if (i + 1 == shape.rows)
        read += sequences *
                (seen.keys * static_cast<double>(c.head_dim) + seen.index_rows * static_cast<double>(c.index_head_dim));
    }
  }
  return {2 * (tokens * per_token + sequences * (logits + attention)), 4 * read};
}

}  // namespace plumb
