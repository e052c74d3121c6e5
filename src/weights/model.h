#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/view.h"
#include "model/config.h"

namespace plumb {

/// An owned dense array of rank R.
template <class T, int R>
class Array {
 public:
  Array() = default;
  explicit Array(const std::array<std::int64_t, R>& extents) : extents_(extents) {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    data_.resize(static_cast<std::size_t>(count));
  }
  View<const T, R> view() const { return View<const T, R>(data_.data(), extents_); }
  View<T, R> mutable_view() { return View<T, R>(data_.data(), extents_); }
  bool empty() const { return data_.empty(); }

 private:
  std::vector<T> data_;
  std::array<std::int64_t, R> extents_{};
};

using Vector = Array<float, 1>;
/// A projection stored transposed, [in, out]: outputs are contiguous, so one k-step of every output is one row.
using Projection = Array<float, 2>;

/// One mHC site. n = hc_mult, d = hidden_size.
struct HyperConnection {
  Projection fn;  // [n*d, n*(2+n)]: pre, post, then comb row-major
  Vector base;    // [n*(2+n)]
  Vector scale;   // [3]: pre, post, comb
};

/// One compressor of width w; halves = 2 for overlapping (rate 4) compressors: [first half | last half].
struct CompressorWeights {
  Projection kv;                  // [d, halves*w]
  Projection gate;                // [d, halves*w]
  Array<float, 2> position_bias;  // [rate, halves*w]
  Vector norm;                    // [w]
};

struct IndexerWeights {
  CompressorWeights compressor;  // w = index_head_dim
  Projection q_b;                // [q_lora_rank, index_heads*index_head_dim]
  Projection head_weights;       // [d, index_heads]
};

struct AttentionWeights {
  Vector norm;                   // [d], before the attention
  Projection q_a;                // [d, q_lora_rank]
  Vector q_norm;                 // [q_lora_rank]
  Projection q_b;                // [q_lora_rank, heads*head_dim]
  Projection kv;                 // [d, head_dim]
  Vector kv_norm;                // [head_dim]
  Vector sinks;                  // [heads]
  Array<float, 3> o_a;           // [o_groups, heads/o_groups*head_dim, o_lora_rank]: transposed inside each group
  Projection o_b;                // [o_groups*o_lora_rank, d]
  CompressorWeights compressor;  // compressed layers
  IndexerWeights indexer;        // compressed_sparse layers
};

/// One gated MLP: out = down(silu(min(gate x, limit)) * clamp(up x, ±limit)).
struct MlpWeights {
  Projection gate;  // [d, inner]
  Projection up;    // [d, inner]
  Projection down;  // [inner, d]
};

struct MoeWeights {
  Vector norm;                           // [d], before the experts
  Projection router;                     // [d, experts]
  Vector router_bias;                    // [experts]; scored layers: selection only
  Array<std::int64_t, 2> token_experts;  // [vocab, experts_per_token]; hash layers
  std::vector<MlpWeights> experts;
  MlpWeights shared;  // inner = shared_experts * moe_intermediate
};

struct LayerWeights {
  HyperConnection attention_hc;
  AttentionWeights attention;
  HyperConnection moe_hc;
  MoeWeights moe;
};

/// All weights as f32: plain ones widened exactly, quantised ones decoded.
struct ModelWeights {
  Array<float, 2> embedding;  // [vocab, d]
  std::vector<LayerWeights> layers;
  Projection head_hc_fn;  // [n*d, n]
  Vector head_hc_base;    // [n]
  Vector head_hc_scale;   // [1]
  Vector norm;            // [d]
  Projection head;        // [d, vocab]
};

/// A checkpoint in memory. `hash` (32 hex digits) covers config, profile and every weight byte: equal hash, equal
/// model.
struct Model {
  ModelConfig config;
  ModelWeights weights;
  std::string hash;
  std::int64_t skipped_mtp_tensors = 0;  // `mtp.*` of the checkpoint: the MTP block is not built
};

/// Loads `folder`: config.json, and model.safetensors or model.safetensors.index.json with its shards, in transformers'
/// or the release's tensor names; fp32 or bf16, and matrices also FP8 in blocks, MXFP4 or NVFP4 (stored_weight.h),
/// which become the f32 values they stand for. Every tensor must be used and every weight present with its shape.
/// Errors name the file, the tensor, what was expected and what was found.
Result<Model> load_model(const std::filesystem::path& folder);

}  // namespace plumb
