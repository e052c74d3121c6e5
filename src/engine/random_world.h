#pragma once

// For tests only: small random models with every kind of layer, and the state of a sequence moved as a cache would.

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/local_sequence.h"

namespace plumb {

namespace random_world {

template <int R>
void fill(Rng& rng, Array<float, R>& array, const std::array<std::int64_t, R>& extents, double scale, double mean = 0) {
  array = Array<float, R>(extents);
  for (float& value : array.mutable_view().span()) value = static_cast<float>(mean + scale * rng.normal());
}

inline void fill_projection(Rng& rng, Projection& weight, std::int64_t in, std::int64_t out) {
  fill<2>(rng, weight, {in, out}, 1.5 / std::sqrt(static_cast<double>(in)));
}

inline void fill_compressor(Rng& rng, CompressorWeights& w, std::int64_t d, std::int64_t rate, std::int64_t halves,
                            std::int64_t width) {
  fill_projection(rng, w.kv, d, halves * width);
  fill_projection(rng, w.gate, d, halves * width);
  fill<2>(rng, w.position_bias, {rate, halves * width}, 0.5);
  fill<1>(rng, w.norm, {width}, 0.2, 1.0);
}

inline void fill_hc(Rng& rng, HyperConnection& w, const ModelConfig& c) {
  const std::int64_t n = c.hc_mult;
  fill_projection(rng, w.fn, n * c.hidden_size, n * (2 + n));
  fill<1>(rng, w.base, {n * (2 + n)}, 0.5);
  fill<1>(rng, w.scale, {3}, 0.2, 1.0);
}

inline void fill_mlp(Rng& rng, MlpWeights& w, std::int64_t d, std::int64_t inner) {
  fill_projection(rng, w.gate, d, inner);
  fill_projection(rng, w.up, d, inner);
  fill_projection(rng, w.down, inner, d);
}

inline ModelConfig random_config(Rng& rng) {
  ModelConfig c;
  c.name = "random";
  c.vocab_size = rng.between(20, 40);
  c.hidden_size = rng.between(9, 30);
  c.o_groups = rng.between(1, 2);
  c.heads = c.o_groups * rng.between(1, 3);
  c.head_dim = 2 * rng.between(4, 9);
  c.rope_dim = 2 * rng.between(1, 4);
  c.q_lora_rank = rng.between(5, 20);
  c.o_lora_rank = rng.between(3, 9);
  c.window = rng.between(1, 40);
  c.index_heads = rng.between(1, 4);
  c.index_head_dim = c.rope_dim + 2 * rng.between(0, 3);
  c.index_topk = rng.between(1, 8);
  c.hc_mult = rng.between(2, 4);
  c.hc_sinkhorn_iters = rng.between(1, 20);
  c.hc_eps = 1e-6;
  c.experts = rng.between(3, 6);
  c.experts_per_token = rng.between(1, 2);
  c.shared_experts = 1;
  c.moe_intermediate = rng.between(5, 12);
  c.routed_scaling_factor = 1.5;
  c.swiglu_limit = 1.5;
  c.rms_norm_eps = 1e-6;
  c.max_positions = 4096;
  c.eos_token_id = 1;
  c.compressed_rope = {160000.0, 16.0, 64.0, 32.0, 1.0};
  const int sparse_rate = rng.below(2) == 0 ? 4 : 8, heavy_rate = 16 << rng.below(3);
  c.layers = {{AttentionKind::sliding, 0, MoeKind::hash},
              {AttentionKind::compressed_sparse, sparse_rate, MoeKind::scored},
              {AttentionKind::heavily_compressed, heavy_rate, MoeKind::scored}};
  for (std::size_t i = c.layers.size(); i > 1; --i) std::swap(c.layers[i - 1], c.layers[rng.below(i)]);
  c.layers.push_back({AttentionKind::compressed_sparse, sparse_rate, MoeKind::scored});
  return c;
}

inline void fill_layer(Rng& rng, LayerWeights& w, const LayerConfig& layer, const ModelConfig& c) {
  const std::int64_t d = c.hidden_size, rate = layer.compress_rate;
  AttentionWeights& a = w.attention;
  fill_hc(rng, w.attention_hc, c);
  fill_hc(rng, w.moe_hc, c);
  fill<1>(rng, a.norm, {d}, 0.2, 1.0);
  fill_projection(rng, a.q_a, d, c.q_lora_rank);
  fill<1>(rng, a.q_norm, {c.q_lora_rank}, 0.2, 1.0);
  fill_projection(rng, a.q_b, c.q_lora_rank, c.heads * c.head_dim);
  fill_projection(rng, a.kv, d, c.head_dim);
  fill<1>(rng, a.kv_norm, {c.head_dim}, 0.2, 1.0);
  fill<1>(rng, a.sinks, {c.heads}, 0.5);
  fill<3>(rng, a.o_a, {c.o_groups, c.heads / c.o_groups * c.head_dim, c.o_lora_rank}, 0.3);
  fill_projection(rng, a.o_b, c.o_groups * c.o_lora_rank, d);
  const bool sparse = layer.attention == AttentionKind::compressed_sparse;
  if (layer.attention != AttentionKind::sliding)
    fill_compressor(rng, a.compressor, d, rate, sparse ? 2 : 1, c.head_dim);
  if (sparse) {
    fill_compressor(rng, a.indexer.compressor, d, rate, 2, c.index_head_dim);
    fill_projection(rng, a.indexer.q_b, c.q_lora_rank, c.index_heads * c.index_head_dim);
    fill_projection(rng, a.indexer.head_weights, d, c.index_heads);
  }
  fill<1>(rng, w.moe.norm, {d}, 0.2, 1.0);
  fill_projection(rng, w.moe.router, d, c.experts);
  fill<1>(rng, w.moe.router_bias, {c.experts}, 0.3);
  w.moe.token_experts = Array<std::int64_t, 2>({c.vocab_size, c.experts_per_token});
  for (std::int64_t t = 0; t < c.vocab_size; ++t)
    for (std::int64_t i = 0; i < c.experts_per_token; ++i)
      w.moe.token_experts.mutable_view()(t, i) = (t * 7 + i) % c.experts;
  w.moe.experts.resize(static_cast<std::size_t>(c.experts));
  for (MlpWeights& expert : w.moe.experts) fill_mlp(rng, expert, d, c.moe_intermediate);
  fill_mlp(rng, w.moe.shared, d, c.shared_experts * c.moe_intermediate);
}

}  // namespace random_world

/// A model with random shapes and weights; window, rates, head counts and the order of layers vary with the seed.
inline std::shared_ptr<Model> random_model(std::uint64_t seed) {
  Rng rng{derive_seed(seed, "model")};
  auto model = std::make_shared<Model>();
  model->config = random_world::random_config(rng);
  const ModelConfig& c = model->config;
  ModelWeights& w = model->weights;
  random_world::fill<2>(rng, w.embedding, {c.vocab_size, c.hidden_size}, 1.0);
  w.layers.resize(c.layers.size());
  for (std::size_t i = 0; i < c.layers.size(); ++i) random_world::fill_layer(rng, w.layers[i], c.layers[i], c);
  random_world::fill_projection(rng, w.head_hc_fn, c.hc_mult * c.hidden_size, c.hc_mult);
  random_world::fill<1>(rng, w.head_hc_base, {c.hc_mult}, 0.5);
  random_world::fill<1>(rng, w.head_hc_scale, {1}, 0.2, 1.0);
  random_world::fill<1>(rng, w.norm, {c.hidden_size}, 0.2, 1.0);
  random_world::fill_projection(rng, w.head, c.hidden_size, c.vocab_size);
  return model;
}

inline std::vector<std::int32_t> random_ids(const ModelConfig& config, std::int64_t count, Rng& rng) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(config.vocab_size))));
  return ids;
}

/// A new sequence that continues where `from` stands, made of what a cache moves: the closed rows of its pages, and a
/// tail. Everything else in its pages is NaN.
inline std::unique_ptr<LocalSequence> transplant(const StateLayout& layout, const ModelConfig& config,
                                                 SequenceState& from) {
  auto to = std::make_unique<LocalSequence>(layout);
  SequenceState& state = to->reserve(from.length);
  for (const StateKind& kind : layout.kinds()) {
    if (kind.home != Home::page) continue;
    const std::int64_t closed = from.length / config.layers[static_cast<std::size_t>(kind.layer)].compress_rate;
    for (std::int64_t n = 0; n < closed; ++n) {
      const std::int64_t page = n / kind.rows, offset = kind.offset + n % kind.rows * kind.width;
      std::copy_n(from.pages[static_cast<std::size_t>(page)] + offset, kind.width,
                  state.pages[static_cast<std::size_t>(page)] + offset);
    }
  }
  std::vector<float> tail(static_cast<std::size_t>(layout.tail_floats()));
  save_tail(layout, from, tail);
  restore_tail(layout, tail, from.length, state);
  return to;
}

}  // namespace plumb
