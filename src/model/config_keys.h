#pragma once

#include <array>
#include <string_view>

namespace plumb {

/// What the loader does with a key of config.json. A key that is not in the table stops the load.
enum class KeyUse {
  read,     // decides numbers or names; config.cpp reads it
  fixed,    // decides numbers, and only one value is implemented: `detail` is that value as JSON
  ignored,  // decides no number; `detail` says why
};

struct ConfigKey {
  std::string_view name;
  KeyUse use;
  std::string_view detail;
};

inline constexpr std::string_view kStorage = "how weights are stored: the file itself says it";
inline constexpr std::string_view kProvenance = "where the file came from";
inline constexpr std::string_view kTraining = "training only";
inline constexpr std::string_view kGeneration = "a default of the caller's sampling or stopping, set per request here";
inline constexpr std::string_view kOutputs = "which values the library returns";
inline constexpr std::string_view kLabels = "classification heads, which this model lacks";
inline constexpr std::string_view kTokens = "a token id that the forward pass does not use";
inline constexpr std::string_view kRuntime = "how the library computes, not what";

/// Every key known at the top level of config.json, in any dialect.
inline constexpr std::array kConfigKeys{
    ConfigKey{"name", KeyUse::read, ""},
    ConfigKey{"plumb", KeyUse::read, ""},
    ConfigKey{"vocab_size", KeyUse::read, ""},
    ConfigKey{"hidden_size", KeyUse::read, ""},
    ConfigKey{"num_hidden_layers", KeyUse::read, ""},
    ConfigKey{"num_attention_heads", KeyUse::read, ""},
    ConfigKey{"head_dim", KeyUse::read, ""},
    ConfigKey{"qk_rope_head_dim", KeyUse::read, ""},
    ConfigKey{"partial_rotary_factor", KeyUse::read, ""},
    ConfigKey{"q_lora_rank", KeyUse::read, ""},
    ConfigKey{"o_groups", KeyUse::read, ""},
    ConfigKey{"o_lora_rank", KeyUse::read, ""},
    ConfigKey{"sliding_window", KeyUse::read, ""},
    ConfigKey{"compress_ratios", KeyUse::read, ""},
    ConfigKey{"layer_types", KeyUse::read, ""},
    ConfigKey{"compress_rates", KeyUse::read, ""},
    ConfigKey{"mlp_layer_types", KeyUse::read, ""},
    ConfigKey{"num_hash_layers", KeyUse::read, ""},
    ConfigKey{"rope_theta", KeyUse::read, ""},
    ConfigKey{"compress_rope_theta", KeyUse::read, ""},
    ConfigKey{"rope_scaling", KeyUse::read, ""},
    ConfigKey{"rope_parameters", KeyUse::read, ""},
    ConfigKey{"max_position_embeddings", KeyUse::read, ""},
    ConfigKey{"index_n_heads", KeyUse::read, ""},
    ConfigKey{"index_head_dim", KeyUse::read, ""},
    ConfigKey{"index_topk", KeyUse::read, ""},
    ConfigKey{"hc_mult", KeyUse::read, ""},
    ConfigKey{"hc_sinkhorn_iters", KeyUse::read, ""},
    ConfigKey{"hc_eps", KeyUse::read, ""},
    ConfigKey{"n_routed_experts", KeyUse::read, ""},
    ConfigKey{"num_local_experts", KeyUse::read, ""},
    ConfigKey{"n_shared_experts", KeyUse::read, ""},
    ConfigKey{"num_experts_per_tok", KeyUse::read, ""},
    ConfigKey{"moe_intermediate_size", KeyUse::read, ""},
    ConfigKey{"intermediate_size", KeyUse::read, ""},
    ConfigKey{"routed_scaling_factor", KeyUse::read, ""},
    ConfigKey{"swiglu_limit", KeyUse::read, ""},
    ConfigKey{"rms_norm_eps", KeyUse::read, ""},
    ConfigKey{"num_nextn_predict_layers", KeyUse::read, ""},
    ConfigKey{"bos_token_id", KeyUse::read, ""},
    ConfigKey{"eos_token_id", KeyUse::read, ""},
    ConfigKey{"quantization_config", KeyUse::read, ""},

    ConfigKey{"model_type", KeyUse::fixed, R"("deepseek_v4")"},
    ConfigKey{"architectures", KeyUse::fixed, R"(["DeepseekV4ForCausalLM"])"},
    ConfigKey{"num_key_value_heads", KeyUse::fixed, "1"},
    ConfigKey{"hidden_act", KeyUse::fixed, R"("silu")"},
    ConfigKey{"attention_bias", KeyUse::fixed, "false"},
    ConfigKey{"mlp_bias", KeyUse::fixed, "false"},
    ConfigKey{"attention_dropout", KeyUse::fixed, "0.0"},
    ConfigKey{"scoring_func", KeyUse::fixed, R"("sqrtsoftplus")"},
    ConfigKey{"topk_method", KeyUse::fixed, R"("noaux_tc")"},
    ConfigKey{"norm_topk_prob", KeyUse::fixed, "true"},
    ConfigKey{"tie_word_embeddings", KeyUse::fixed, "false"},
    ConfigKey{"router_jitter_noise", KeyUse::fixed, "0.0"},
    ConfigKey{"is_encoder_decoder", KeyUse::fixed, "false"},
    ConfigKey{"add_cross_attention", KeyUse::fixed, "false"},
    ConfigKey{"pruned_heads", KeyUse::fixed, "{}"},

    ConfigKey{"dtype", KeyUse::ignored, kStorage},
    ConfigKey{"torch_dtype", KeyUse::ignored, kStorage},
    ConfigKey{"expert_dtype", KeyUse::ignored, kStorage},
    ConfigKey{"transformers_version", KeyUse::ignored, kProvenance},
    ConfigKey{"_name_or_path", KeyUse::ignored, kProvenance},
    ConfigKey{"_commit_hash", KeyUse::ignored, kProvenance},
    ConfigKey{"auto_map", KeyUse::ignored, kProvenance},
    ConfigKey{"tokenizer_class", KeyUse::ignored, kProvenance},
    ConfigKey{"initializer_range", KeyUse::ignored, kTraining},
    ConfigKey{"router_aux_loss_coef", KeyUse::ignored, kTraining},
    ConfigKey{"aux_loss_alpha", KeyUse::ignored, kTraining},
    ConfigKey{"seq_aux", KeyUse::ignored, kTraining},
    ConfigKey{"gradient_checkpointing", KeyUse::ignored, kTraining},
    ConfigKey{"output_router_logits", KeyUse::ignored, kOutputs},
    ConfigKey{"output_hidden_states", KeyUse::ignored, kOutputs},
    ConfigKey{"output_attentions", KeyUse::ignored, kOutputs},
    ConfigKey{"output_scores", KeyUse::ignored, kOutputs},
    ConfigKey{"return_dict", KeyUse::ignored, kOutputs},
    ConfigKey{"return_dict_in_generate", KeyUse::ignored, kOutputs},
    ConfigKey{"id2label", KeyUse::ignored, kLabels},
    ConfigKey{"label2id", KeyUse::ignored, kLabels},
    ConfigKey{"problem_type", KeyUse::ignored, kLabels},
    ConfigKey{"finetuning_task", KeyUse::ignored, kLabels},
    ConfigKey{"task_specific_params", KeyUse::ignored, kLabels},
    ConfigKey{"pad_token_id", KeyUse::ignored, kTokens},
    ConfigKey{"sep_token_id", KeyUse::ignored, kTokens},
    ConfigKey{"decoder_start_token_id", KeyUse::ignored, kTokens},
    ConfigKey{"use_cache", KeyUse::ignored, kRuntime},
    ConfigKey{"chunk_size_feed_forward", KeyUse::ignored, kRuntime},
    ConfigKey{"torchscript", KeyUse::ignored, kRuntime},
    ConfigKey{"pretraining_tp", KeyUse::ignored, kRuntime},
    ConfigKey{"ep_size", KeyUse::ignored, kRuntime},
    ConfigKey{"is_decoder", KeyUse::ignored, kRuntime},
    ConfigKey{"attn_implementation", KeyUse::ignored, kRuntime},
    ConfigKey{"_attn_implementation", KeyUse::ignored, kRuntime},
    ConfigKey{"max_length", KeyUse::ignored, kGeneration},
    ConfigKey{"min_length", KeyUse::ignored, kGeneration},
    ConfigKey{"do_sample", KeyUse::ignored, kGeneration},
    ConfigKey{"temperature", KeyUse::ignored, kGeneration},
    ConfigKey{"top_k", KeyUse::ignored, kGeneration},
    ConfigKey{"top_p", KeyUse::ignored, kGeneration},
    ConfigKey{"num_beams", KeyUse::ignored, kGeneration},
    ConfigKey{"repetition_penalty", KeyUse::ignored, kGeneration},
    ConfigKey{"length_penalty", KeyUse::ignored, kGeneration},
};

}  // namespace plumb
