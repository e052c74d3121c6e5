#include "model/quantisation_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "tensor/strict_json.h"

namespace plumb {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kMaxBlock = 1 << 20;

/// A key with the one value that is implemented; empty: any value, for the files say it themselves.
struct QuantisationKey {
  std::string_view name;
  std::string_view value;
};

// Of the release, then of its NVFP4 export. What concerns activations decides nothing: profile math leaves them alone.
constexpr std::array kQuantisationKeys{
    QuantisationKey{"quant_method", R"("fp8")"},
    QuantisationKey{"fmt", R"("e4m3")"},
    QuantisationKey{"weight_block_size", ""},
    QuantisationKey{"scale_fmt", ""},
    QuantisationKey{"activation_scheme", ""},
    QuantisationKey{"moe_quant_algo", R"("NVFP4")"},
    QuantisationKey{"quant_algo", R"("MIXED_PRECISION")"},
    QuantisationKey{"group_size", "16"},
    QuantisationKey{"kv_cache_quant_algo", "null"},
    QuantisationKey{"quantized_layers", ""},
    QuantisationKey{"ignore", ""},
    QuantisationKey{"exclude_modules", ""},
    QuantisationKey{"modules_to_not_convert", ""},
};

Result<void> check_key(const std::string& key, const json& value, const std::string& where) {
  const auto* const known = std::find_if(kQuantisationKeys.begin(), kQuantisationKeys.end(),
                                         [&](const QuantisationKey& k) { return k.name == key; });
  if (known == kQuantisationKeys.end())
    return error("unknown key '{}.{}' could change numerics; remove it if it does not", where, key);
  if (!known->value.empty() && !value.is_null() && value != json::parse(known->value))
    return error("{}.{} is {}, but only {} is supported", where, key, shown(value), known->value);
  return {};
}

bool is_extent(const json& value) { return value.is_number_unsigned() && value > 0u && value <= kMaxBlock; }

/// A double as people write it: 16, not 16.0.
ordered_json number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

Result<ordered_json> compress_ratios(const ModelConfig& config) {
  ordered_json ratios = ordered_json::array();
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    const AttentionKind implied = layer.compress_rate == 0   ? AttentionKind::sliding
                                  : layer.compress_rate == 4 ? AttentionKind::compressed_sparse
                                                             : AttentionKind::heavily_compressed;
    if (layer.attention != implied)
      return error("layer {}: the release's config has no word for this kind of attention at compress rate {}", i,
                   layer.compress_rate);
    ratios.push_back(layer.compress_rate);
  }
  return ratios;
}

Result<std::int64_t> hashed_layers(const ModelConfig& config) {
  std::int64_t hashed = 0;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].moe != MoeKind::hash) continue;
    if (hashed != static_cast<std::int64_t>(i))
      return error("layer {}: hashed after a scored layer; the release's config can only hash the first layers", i);
    ++hashed;
  }
  return hashed;
}

ordered_json layer_entries(const std::vector<std::string>& layers) {
  ordered_json entries = ordered_json::object();
  for (const std::string& name : layers) entries[name] = {{"quant_algo", "NVFP4"}, {"group_size", 16}};
  return entries;
}

ordered_json quantisation_entry(ExportForm form, const std::vector<std::string>& nvfp4_layers) {
  ordered_json entry{{"activation_scheme", "dynamic"},
                     {"fmt", "e4m3"},
                     {"quant_method", "fp8"},
                     {"scale_fmt", "ue8m0"},
                     {"weight_block_size", {BlockShape{}.rows, BlockShape{}.columns}}};
  if (form != ExportForm::nvfp4) return entry;
  entry["moe_quant_algo"] = "NVFP4";
  entry["quant_algo"] = "MIXED_PRECISION";
  entry["group_size"] = 16;
  entry["kv_cache_quant_algo"] = nullptr;
  entry["quantized_layers"] = layer_entries(nvfp4_layers);
  entry["ignore"] = {"*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"};
  return entry;
}

ordered_json yarn_entry(const RopeProfile& rope) {
  if (rope.factor == 1) return nullptr;
  return {{"type", "yarn"},
          {"factor", number(rope.factor)},
          {"original_max_position_embeddings", number(rope.original_max_positions)},
          {"beta_fast", number(rope.beta_fast)},
          {"beta_slow", number(rope.beta_slow)}};
}

constexpr std::array<std::string_view, 3> kFormNames{"release", "release-fp8-fp4", "nvfp4"};

}  // namespace

Result<BlockShape> read_quantisation_config(const json& quantisation, const std::string& where) {
  if (!quantisation.is_object()) return error("{} is not an object", where);
  for (const auto& [key, value] : quantisation.items())
    if (const auto good = check_key(key, value, where); !good) return tl::unexpected(good.error());
  if (!quantisation.contains("quant_method") || quantisation["quant_method"].is_null())
    return error("{}.quant_method is missing", where);
  if (!quantisation.contains("weight_block_size") || quantisation["weight_block_size"].is_null()) return BlockShape{};
  const json& block = quantisation["weight_block_size"];
  if (!block.is_array() || block.size() != 2 || !is_extent(block[0]) || !is_extent(block[1]))
    return error("{}.weight_block_size is not two integers in [1, {}]", where, kMaxBlock);
  return BlockShape{block[0].get<std::int64_t>(), block[1].get<std::int64_t>()};
}

std::string_view export_form_name(ExportForm form) { return kFormNames.at(static_cast<std::size_t>(form)); }

std::optional<ExportForm> export_form_from_name(std::string_view name) {
  for (const ExportForm form : {ExportForm::release, ExportForm::release_fp8_fp4, ExportForm::nvfp4})
    if (export_form_name(form) == name) return form;
  return std::nullopt;
}

Result<std::string> release_config_text(const ModelConfig& c, ExportForm form,
                                        const std::vector<std::string>& nvfp4_layers) {
  const auto ratios = compress_ratios(c);
  if (!ratios) return tl::unexpected(ratios.error());
  const auto hashed = hashed_layers(c);
  if (!hashed) return tl::unexpected(hashed.error());
  ordered_json document{{"architectures", {"DeepseekV4ForCausalLM"}},
                        {"model_type", "deepseek_v4"},
                        {"vocab_size", c.vocab_size},
                        {"hidden_size", c.hidden_size},
                        {"moe_intermediate_size", c.moe_intermediate},
                        {"num_hidden_layers", c.layers.size()},
                        {"num_attention_heads", c.heads},
                        {"num_key_value_heads", 1},
                        {"head_dim", c.head_dim},
                        {"qk_rope_head_dim", c.rope_dim},
                        {"q_lora_rank", c.q_lora_rank},
                        {"o_groups", c.o_groups},
                        {"o_lora_rank", c.o_lora_rank},
                        {"sliding_window", c.window},
                        {"compress_ratios", *ratios},
                        {"index_n_heads", c.index_heads},
                        {"index_head_dim", c.index_head_dim},
                        {"index_topk", c.index_topk},
                        {"hc_mult", c.hc_mult},
                        {"hc_sinkhorn_iters", c.hc_sinkhorn_iters},
                        {"hc_eps", c.hc_eps},
                        {"n_routed_experts", c.experts},
                        {"n_shared_experts", c.shared_experts},
                        {"num_experts_per_tok", c.experts_per_token},
                        {"num_hash_layers", *hashed},
                        {"scoring_func", "sqrtsoftplus"},
                        {"topk_method", "noaux_tc"},
                        {"norm_topk_prob", true},
                        {"routed_scaling_factor", number(c.routed_scaling_factor)},
                        {"swiglu_limit", number(c.swiglu_limit)},
                        {"hidden_act", "silu"},
                        {"rms_norm_eps", c.rms_norm_eps},
                        {"rope_theta", number(c.window_rope.theta)},
                        {"compress_rope_theta", number(c.compressed_rope.theta)},
                        {"rope_scaling", yarn_entry(c.compressed_rope)},
                        {"max_position_embeddings", c.max_positions},
                        {"num_nextn_predict_layers", 0},
                        {"attention_bias", false},
                        {"attention_dropout", 0.0},
                        {"tie_word_embeddings", false},
                        {"bos_token_id", c.bos_token_id},
                        {"eos_token_id", c.eos_token_id},
                        {"torch_dtype", "bfloat16"}};
  if (form != ExportForm::release) {
    document["expert_dtype"] = "fp4";
    document["quantization_config"] = quantisation_entry(form, nvfp4_layers);
  }
  return document.dump(1) + "\n";
}

std::string nvfp4_manifest_text(const std::vector<std::string>& nvfp4_layers) {
  const ordered_json document{
      {"producer", {{"name", "plumb"}}},
      {"quantization",
       {{"quant_algo", "MIXED_PRECISION"},
        {"kv_cache_quant_algo", nullptr},
        {"group_size", 16},
        {"quantized_layers", layer_entries(nvfp4_layers)},
        {"exclude_modules",
         {"*.attn.*", "*.ffn.shared_experts.*", "*.ffn.gate.*", "*norm.*", "*hc_*", "embed", "head", "mtp.*"}}}}};
  return document.dump(1) + "\n";
}

}  // namespace plumb
