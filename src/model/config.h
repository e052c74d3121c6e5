#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace plumb {

/// What a layer attends to besides its window: nothing, ratio-4 rows chosen by the indexer, or all ratio-128 rows.
/// Tiny configurations may use other rates; `compress_rate` holds the number.
enum class AttentionKind { sliding, compressed_sparse, heavily_compressed };

/// Hash-routed (by token id) or scored experts.
enum class MoeKind { hash, scored };

/// Rotary frequencies of one layer kind: f_i = theta^(-2i/dim), with YaRN's ramp when factor > 1.
struct RopeProfile {
  double theta = 10000.0;
  double factor = 1.0;  // 1: no YaRN
  double original_max_positions = 0.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
};

struct LayerConfig {
  AttentionKind attention;
  int compress_rate;  // 0 for sliding layers
  MoeKind moe;
};

/// Which quantisers the forward pass simulates: none (equals transformers in fp32), or the release's.
enum class Profile { math, official };

/// Rows and columns of a matrix [out, in] that share one scale.
struct BlockShape {
  std::int64_t rows = 128;
  std::int64_t columns = 128;
  bool operator==(const BlockShape&) const = default;
};

/// Everything in config.json that decides a number, in one form whatever the dialect. Units: elements, positions.
struct ModelConfig {
  std::string name;  // served model id unless told otherwise: the config's `name`, else the folder's
  Profile profile = Profile::math;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rope_dim = 0;  // the last rope_dim of head_dim (and of index_head_dim) are rotated
  std::int64_t q_lora_rank = 0;
  std::int64_t o_groups = 0;
  std::int64_t o_lora_rank = 0;
  std::int64_t window = 0;  // keys a query sees, its own included
  std::int64_t index_heads = 0;
  std::int64_t index_head_dim = 0;
  std::int64_t index_topk = 0;
  std::int64_t hc_mult = 0;
  std::int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t shared_experts = 0;
  std::int64_t moe_intermediate = 0;
  double routed_scaling_factor = 0;
  double swiglu_limit = 0;
  double rms_norm_eps = 0;
  std::int64_t max_positions = 0;
  std::int32_t bos_token_id = 0;
  std::int32_t eos_token_id = 0;
  BlockShape fp8_block;         // of weights that are stored as FP8
  RopeProfile window_rope;      // sliding layers
  RopeProfile compressed_rope;  // compressed layers: queries, keys, rows, index
  std::vector<LayerConfig> layers;
};

/// Reads any of three dialects: the release's (compress_ratios, num_hash_layers, rope_scaling), transformers' nested
/// (layer_types, rope_parameters.{main,compress}) and transformers' flat (one rope_parameters, for compressed layers).
/// Errors: a missing key, a key that is unknown and could affect numerics, keys that contradict each other or shapes
/// that do not divide; the message names file, key and value.
Result<ModelConfig> parse_model_config(std::string_view json, const std::string& file_name);

/// Reads `folder`/config.json.
Result<ModelConfig> load_model_config(const std::filesystem::path& folder);

}  // namespace plumb
