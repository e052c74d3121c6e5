#include "model/config.h"

#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/config_keys.h"

namespace plumb {
namespace {

using nlohmann::json;

const std::string kSource = PLUMB_SOURCE_DIR;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

enum class Dialect { release, nested, flat };

std::string text_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::release:
      return read_file(kSource + "/src/model/testdata/small.release.json");
    case Dialect::nested:
      return read_file(kSource + "/src/model/testdata/small.nested.json");
    default:
      return read_file(kSource + "/src/model/testdata/small.flat.json");
  }
}

void expect_small(const Result<ModelConfig>& config) {
  ASSERT_TRUE(config) << config.error().message;
  const ModelConfig& c = *config;
  EXPECT_EQ(c.vocab_size, 1024);
  EXPECT_EQ(c.hidden_size, 256);
  EXPECT_EQ(c.heads, 4);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.rope_dim, 32);
  EXPECT_EQ(c.q_lora_rank, 128);
  EXPECT_EQ(c.o_groups, 2);
  EXPECT_EQ(c.o_lora_rank, 128);
  EXPECT_EQ(c.window, 64);
  EXPECT_EQ(c.index_heads, 4);
  EXPECT_EQ(c.index_head_dim, 64);
  EXPECT_EQ(c.index_topk, 64);
  EXPECT_EQ(c.hc_mult, 4);
  EXPECT_EQ(c.hc_sinkhorn_iters, 20);
  EXPECT_EQ(c.hc_eps, 1e-6);
  EXPECT_EQ(c.experts, 8);
  EXPECT_EQ(c.experts_per_token, 2);
  EXPECT_EQ(c.shared_experts, 1);
  EXPECT_EQ(c.moe_intermediate, 64);
  EXPECT_EQ(c.routed_scaling_factor, 1.5);
  EXPECT_EQ(c.swiglu_limit, 10.0);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.max_positions, 65536);
  EXPECT_EQ(c.bos_token_id, 0);
  EXPECT_EQ(c.eos_token_id, 1);
  EXPECT_EQ(c.profile, Profile::math);
  EXPECT_EQ(c.window_rope.theta, 10000.0);
  EXPECT_EQ(c.window_rope.factor, 1.0);
  EXPECT_EQ(c.compressed_rope.theta, 160000.0);
  EXPECT_EQ(c.compressed_rope.factor, 16.0);
  EXPECT_EQ(c.compressed_rope.original_max_positions, 4096.0);
  EXPECT_EQ(c.compressed_rope.beta_fast, 32.0);
  EXPECT_EQ(c.compressed_rope.beta_slow, 1.0);
  const int rates[] = {0, 0, 4, 128, 4, 128, 4};
  ASSERT_EQ(c.layers.size(), std::size(rates));
  for (std::size_t i = 0; i < std::size(rates); ++i) {
    EXPECT_EQ(c.layers[i].compress_rate, rates[i]);
    EXPECT_EQ(c.layers[i].attention, rates[i] == 0   ? AttentionKind::sliding
                                     : rates[i] == 4 ? AttentionKind::compressed_sparse
                                                     : AttentionKind::heavily_compressed);
    EXPECT_EQ(c.layers[i].moe, i < 2 ? MoeKind::hash : MoeKind::scored);
  }
}

TEST(Config, ReleaseDialectGivesTheSmallModel) { expect_small(parse_model_config(text_of(Dialect::release), "c")); }
TEST(Config, NestedDialectGivesTheSmallModel) { expect_small(parse_model_config(text_of(Dialect::nested), "c")); }
TEST(Config, FlatDialectGivesTheSmallModel) { expect_small(parse_model_config(text_of(Dialect::flat), "c")); }

TEST(Config, LoadsTheWholeDumpOfTheLibrary) {
  const auto config = load_model_config(kSource + "/tests/golden/tiny-random-a");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->name, "tiny-random-a");
  EXPECT_EQ(config->rope_dim, 8);
  EXPECT_EQ(config->compressed_rope.original_max_positions, 256.0);
  EXPECT_EQ(config->layers.size(), 6u);
}

TEST(Config, NameIsTheConfigsElseTheFolders) {
  json document = json::parse(text_of(Dialect::nested));
  document["name"] = "my model";
  EXPECT_EQ(parse_model_config(document.dump(), "c")->name, "my model");
  EXPECT_EQ(load_model_config(kSource + "/tests/golden/tiny-random-a/")->name, "tiny-random-a");
}

TEST(Config, AliasesAndAgreeingStatementsAreAccepted) {
  json document = json::parse(text_of(Dialect::release));
  document.merge_patch(json::parse(R"({"n_routed_experts": null, "num_local_experts": 8, "intermediate_size": 64,
      "partial_rotary_factor": 0.25, "mlp_layer_types": ["hash_moe","hash_moe","moe","moe","moe","moe","moe"],
      "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
      "plumb": {"profile": "math"}})"));
  expect_small(parse_model_config(document.dump(), "c"));
}

TEST(Config, StorageOfWeightsIsRead) {
  json document = json::parse(text_of(Dialect::release));
  document.merge_patch(json::parse(R"({"expert_dtype": "fp4",
      "quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 128]}})"));
  const auto config = parse_model_config(document.dump(), "c");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->fp8_block, (BlockShape{64, 128}));
  EXPECT_EQ(config->hidden_size, 256);
}

TEST(Config, AnExplicitNullRopeScalingMeansNoYarn) {
  json document = json::parse(text_of(Dialect::release));
  document["rope_scaling"] = nullptr;
  const auto config = parse_model_config(document.dump(), "c");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->compressed_rope.factor, 1.0);
}

struct BadConfig {
  const char* name;
  Dialect dialect;
  const char* patch;  // JSON merge patch: null removes a key
  const char* message;
};

class ConfigBad : public testing::TestWithParam<BadConfig> {};

TEST_P(ConfigBad, IsRefusedWithItsReason) {
  json document = json::parse(text_of(GetParam().dialect));
  document.merge_patch(json::parse(GetParam().patch));
  const auto config = parse_model_config(document.dump(), "config.json");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message, std::string("config.json: ") + GetParam().message);
}

constexpr Dialect kRelease = Dialect::release, kNested = Dialect::nested, kFlat = Dialect::flat;

const BadConfig kBadConfigs[] = {
    {"UnknownKey", kNested, R"({"attn_logit_softcap": 30})",
     "unknown key 'attn_logit_softcap' could change numerics; remove it if it does not"},
    {"V41", kNested, R"({"model_type": "deepseek_v41"})",
     "model_type \"deepseek_v41\" is another architecture than deepseek_v4 and is not supported"},
    {"OtherModel", kNested, R"({"model_type": "llama"})",
     "model_type is \"llama\", but only \"deepseek_v4\" is supported"},
    {"NoModelType", kNested, R"({"model_type": null})", "model_type is missing"},
    {"OtherQuantisation", kRelease, R"({"quantization_config": {"quant_method": "awq"}})",
     "quantization_config.quant_method is \"awq\", but only \"fp8\" is supported"},
    {"QuantisationOfNoKind", kRelease, R"({"quantization_config": "fp8"})", "quantization_config is not an object"},
    {"HiddenAct", kRelease, R"({"hidden_act": "gelu"})", "hidden_act is \"gelu\", but only \"silu\" is supported"},
    {"AttentionBias", kNested, R"({"attention_bias": true})", "attention_bias is true, but only false is supported"},
    {"KeyValueHeads", kRelease, R"({"num_key_value_heads": 3})", "num_key_value_heads is 3, but only 1 is supported"},
    {"ScoringFunc", kRelease, R"({"scoring_func": "sigmoid"})",
     "scoring_func is \"sigmoid\", but only \"sqrtsoftplus\" is supported"},
    {"TopkMethod", kRelease, R"({"topk_method": "greedy"})",
     "topk_method is \"greedy\", but only \"noaux_tc\" is supported"},
    {"NormTopk", kRelease, R"({"norm_topk_prob": false})", "norm_topk_prob is false, but only true is supported"},
    {"TiedEmbeddings", kNested, R"({"tie_word_embeddings": true})",
     "tie_word_embeddings is true, but only false is supported"},
    {"Official", kNested, R"({"plumb": {"profile": "official"}})",
     "plumb.profile \"official\" is not built yet; use \"math\""},
    {"UnknownProfile", kNested, R"({"plumb": {"profile": "fast"}})",
     "plumb.profile \"fast\" is neither \"math\" nor \"official\""},
    {"UnknownPlumbKey", kNested, R"({"plumb": {"window": 1}})", "unknown key 'plumb.window'"},
    {"Missing", kNested, R"({"hidden_size": null})", "hidden_size is missing"},
    {"MissingRope", kRelease, R"({"rope_scaling": null})", "rope_parameters (or rope_scaling) is missing"},
    {"MissingRotary", kRelease, R"({"qk_rope_head_dim": null})",
     "qk_rope_head_dim (or partial_rotary_factor) is missing"},
    {"MissingLayers", kRelease, R"({"compress_ratios": null})", "compress_ratios (or layer_types) is missing"},
    {"MissingMoe", kRelease, R"({"num_hash_layers": null})", "num_hash_layers (or mlp_layer_types) is missing"},
    {"MissingRate", kNested, R"({"compress_rates": {"compressed_sparse_attention": null}})",
     "compress_rates.compressed_sparse_attention is missing"},
    {"MissingYarn", kRelease, R"({"rope_scaling": {"factor": null}})", "rope_scaling.factor is missing"},
    {"NotAnInteger", kNested, R"({"hidden_size": 256.0})", "hidden_size 256.0 is not an integer"},
    {"TooLarge", kNested, R"({"hidden_size": 18446744073709551615})",
     "hidden_size 18446744073709551615 is outside [1, 1048576]"},
    {"Negative", kNested, R"({"head_dim": -1})", "head_dim -1 is outside [1, 1048576]"},
    {"TooManyLayers", kNested, R"({"num_hidden_layers": 129})", "num_hidden_layers 129 is outside [1, 128]"},
    {"NotANumber", kNested, R"({"swiglu_limit": "10"})", "swiglu_limit \"10\" is not a number"},
    {"NotPositive", kNested, R"({"hc_eps": 0})", "hc_eps 0 is outside (0, 0.01]"},
    {"HugeHcEps", kNested, R"({"hc_eps": 1e300})", "hc_eps 1e+300 is outside (0, 0.01]"},
    {"HugeNormEps", kNested, R"({"rms_norm_eps": 0.011})", "rms_norm_eps 0.011 is outside (0, 0.01]"},
    {"HugeScaling", kNested, R"({"routed_scaling_factor": 1e300})",
     "routed_scaling_factor 1e+300 is outside (0, 1000]"},
    {"NegativeScaling", kNested, R"({"routed_scaling_factor": -1})", "routed_scaling_factor -1 is outside (0, 1000]"},
    {"HugeClamp", kNested, R"({"swiglu_limit": 1000001})", "swiglu_limit 1000001 is outside (0, 1000000]"},
    {"HugeTheta", kRelease, R"({"rope_theta": 1e13})", "rope_theta 10000000000000.0 is outside [1, 1000000000000]"},
    {"SmallTheta", kRelease, R"({"compress_rope_theta": 0.5})",
     "compress_rope_theta 0.5 is outside [1, 1000000000000]"},
    {"HugeFactor", kRelease, R"({"rope_scaling": {"factor": 1e300}})",
     "rope_scaling.factor 1e+300 is outside [1, 10000]"},
    {"SmallFactor", kRelease, R"({"rope_scaling": {"factor": 0.99}})",
     "rope_scaling.factor 0.99 is outside [1, 10000]"},
    {"HugeOriginal", kRelease, R"({"rope_scaling": {"original_max_position_embeddings": 1e300}})",
     "rope_scaling.original_max_position_embeddings 1e+300 is outside [1, 1073741824]"},
    {"HugeBeta", kRelease, R"({"rope_scaling": {"beta_fast": 1e300}})",
     "rope_scaling.beta_fast 1e+300 is outside (0, 1000000]"},
    {"HugeRotary", kFlat, R"({"partial_rotary_factor": 1e300})", "partial_rotary_factor 1e+300 is outside (0, 1]"},
    {"HugeHeads", kRelease, R"({"num_attention_heads": 2048, "head_dim": 1048576})",
     "num_attention_heads times head_dim is 2147483648, above 1073741824"},
    {"HugeIndexer", kRelease, R"({"index_n_heads": 1048576, "index_head_dim": 1048576})",
     "index_n_heads times index_head_dim is 1099511627776, above 1073741824"},
    {"HugeOutput", kRelease, R"({"o_lora_rank": 1048576, "o_groups": 2048, "num_attention_heads": 4096})",
     "o_groups times o_lora_rank is 2147483648, above 1073741824"},
    {"HugeExperts", kRelease, R"({"n_routed_experts": 2048, "moe_intermediate_size": 1048576})",
     "n_routed_experts times moe_intermediate_size is 2147483648, above 1073741824"},
    {"AContainerIsNotPrinted", kNested, R"({"hidden_size": [[[1]]]})", "hidden_size an array is not an integer"},
    {"EosOutside", kNested, R"({"eos_token_id": 1024})", "eos_token_id 1024 is not below vocab_size 1024"},
    {"RotaryContradiction", kNested, R"({"partial_rotary_factor": 0.5})",
     "qk_rope_head_dim 32 contradicts partial_rotary_factor 0.5 of head_dim 128, rotary width 64"},
    {"RotaryFraction", kFlat, R"({"partial_rotary_factor": 0.3})",
     "partial_rotary_factor 0.3 of head_dim 128 is not a whole number of dimensions"},
    {"ThetaContradiction", kNested, R"({"rope_parameters": {"main": {"rope_theta": 5000.0}}})",
     "rope_theta 10000 contradicts rope_parameters.main.rope_theta 5000"},
    {"CompressThetaContradiction", kNested, R"({"compress_rope_theta": 40000})",
     "compress_rope_theta 40000 contradicts rope_parameters.compress.rope_theta 160000"},
    {"FlatThetaContradiction", kFlat, R"({"rope_parameters": {"rope_theta": 10000}})",
     "compress_rope_theta 160000 contradicts rope_parameters.rope_theta 10000"},
    {"TwoYarns", kFlat,
     R"({"rope_scaling": {"type": "yarn", "factor": 8, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}})",
     "rope_scaling contradicts rope_parameters"},
    {"YarnOnTheWindow", kNested,
     R"({"rope_parameters": {"main": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}}})",
     "rope_parameters.main has YaRN; only compress may"},
    {"DefaultWithFactor", kRelease, R"({"rope_scaling": {"type": "default"}})",
     "rope_scaling.factor contradicts rope_scaling.rope_type \"default\""},
    {"OtherRope", kFlat, R"({"rope_parameters": {"rope_type": "linear"}})",
     "rope_parameters.rope_type \"linear\" is neither \"default\" nor \"yarn\""},
    {"UnknownRopeKey", kRelease, R"({"rope_scaling": {"mscale": 1.0}})",
     "unknown key 'rope_scaling.mscale' could change numerics"},
    {"AttentionFactor", kNested, R"({"rope_parameters": {"compress": {"attention_factor": 1.2}}})",
     "rope_parameters.compress.attention_factor is 1.2, but only 1.0 is supported"},
    {"NestedWithFlatKeys", kNested, R"({"rope_parameters": {"factor": 16}})",
     "unknown key 'rope_parameters.factor' beside main and compress"},
    {"NestedWithoutCompress", kNested, R"({"rope_parameters": {"compress": null}})",
     "rope_parameters.compress is not an object"},
    {"ExpertsAlias", kNested, R"({"num_local_experts": 16})", "n_routed_experts 8 contradicts num_local_experts 16"},
    {"IntermediateAlias", kNested, R"({"intermediate_size": 128})",
     "moe_intermediate_size 64 contradicts intermediate_size 128"},
    {"RatiosAgainstTypes", kNested, R"({"compress_ratios": [0,0,4,128,4,4,4]})",
     "compress_ratios contradicts layer_types"},
    {"RatiosAgainstRates", kRelease, R"({"compress_rates": {"heavily_compressed_attention": 64}})",
     "compress_rates.heavily_compressed_attention 64 contradicts compress_ratios, which holds 128"},
    {"HashAgainstTypes", kNested, R"({"num_hash_layers": 3})", "num_hash_layers contradicts mlp_layer_types"},
    {"RatiosCount", kRelease, R"({"compress_ratios": [0,0,4,128,4,128]})",
     "compress_ratios has 6 entries, but num_hidden_layers is 7 and num_nextn_predict_layers 1"},
    {"TypesCount", kNested, R"({"num_hidden_layers": 6})", "layer_types has 7 entries, but num_hidden_layers is 6"},
    {"MlpTypesCount", kNested, R"({"mlp_layer_types": ["moe"]})",
     "mlp_layer_types has 1 entries, but num_hidden_layers is 7"},
    {"UnknownLayerType", kNested,
     R"({"layer_types": ["full_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention"]})",
     "layer_types: unknown layer type \"full_attention\""},
    {"RateDoesNotDivideThePage", kNested, R"({"compress_rates": {"heavily_compressed_attention": 48}})",
     "layer 3: compress rate 48 does not divide a page of 128 tokens"},
    {"RatioAboveThePage", kRelease, R"({"compress_ratios": [0,0,4,256,4,128,4]})",
     "compress_ratios: 256 is not an integer in [0, 128]"},
    {"OddRotary", kRelease, R"({"qk_rope_head_dim": 31})", "qk_rope_head_dim 31 is odd"},
    {"RotaryAboveIndex", kRelease, R"({"qk_rope_head_dim": 66})", "qk_rope_head_dim 66 is above index_head_dim 64"},
    {"Groups", kNested, R"({"o_groups": 3})", "o_groups 3 does not divide num_attention_heads 4"},
    {"ExpertsPerToken", kNested, R"({"num_experts_per_tok": 9})", "num_experts_per_tok 9 is above n_routed_experts 8"},
};

INSTANTIATE_TEST_SUITE_P(Table, ConfigBad, testing::ValuesIn(kBadConfigs),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(Config, NoJsonIsRefused) {
  EXPECT_EQ(parse_model_config("[]", "c.json").error().message, "c.json: not a JSON object");
  EXPECT_EQ(parse_model_config("{\"a\":", "c.json").error().message,
            "c.json: not valid JSON: line 1, column 6: unexpected end of input, expected '[', '{', or a literal");
  EXPECT_EQ(parse_model_config(R"({"head_dim": 1, "head_dim": 2})", "c.json").error().message,
            "c.json: key 'head_dim' appears twice in one object");
  EXPECT_EQ(load_model_config("/nonexistent").error().message, "/nonexistent: no such folder");
}

// Every key that is read must matter: without this, a key of the table that nobody reads would be a silent default.
TEST(Config, EveryReadKeyIsHeldToItsType) {
  for (const ConfigKey& key : kConfigKeys) {
    if (key.use != KeyUse::read) continue;
    json document = json::parse(text_of(Dialect::nested));
    document[std::string(key.name)] = json::array({json::object()});
    EXPECT_FALSE(parse_model_config(document.dump(), "c")) << key.name;
  }
}

TEST(Config, KeysAreListedOnceAndIgnoredKeysSayWhy) {
  std::set<std::string_view> seen;
  for (const ConfigKey& key : kConfigKeys) {
    EXPECT_TRUE(seen.insert(key.name).second) << key.name;
    EXPECT_EQ(key.detail.empty(), key.use == KeyUse::read) << key.name;
  }
}

}  // namespace
}  // namespace plumb
