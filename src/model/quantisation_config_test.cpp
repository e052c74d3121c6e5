#include "model/quantisation_config.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace plumb {
namespace {

using nlohmann::json;

const std::filesystem::path kSource = PLUMB_SOURCE_DIR;

Result<BlockShape> read(const std::string& text) {
  return read_quantisation_config(json::parse(text), "quantization_config");
}

TEST(QuantisationConfig, TheReleasesAndItsNvfp4ExportAreKnown) {
  const auto release = read(R"({"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
                                "weight_block_size": [128, 128], "activation_scheme": "dynamic"})");
  ASSERT_TRUE(release) << release.error().message;
  EXPECT_EQ(*release, (BlockShape{128, 128}));
  const auto nvfp4 = read(R"({"quant_method": "fp8", "weight_block_size": [64, 32], "moe_quant_algo": "NVFP4",
                              "quant_algo": "MIXED_PRECISION", "group_size": 16, "kv_cache_quant_algo": null,
                              "quantized_layers": {"layers.0.ffn.experts.0.w1": {"quant_algo": "NVFP4"}},
                              "ignore": ["*.attn.*"]})");
  ASSERT_TRUE(nvfp4) << nvfp4.error().message;
  EXPECT_EQ(*nvfp4, (BlockShape{64, 32}));
  EXPECT_EQ(*read(R"({"quant_method": "fp8"})"), BlockShape{});
}

TEST(QuantisationConfig, OthersAreRefusedWithTheirReason) {
  const std::pair<const char*, const char*> rows[] = {
      {R"([])", "quantization_config is not an object"},
      {R"({})", "quantization_config.quant_method is missing"},
      {R"({"quant_method": "gptq"})", R"(quantization_config.quant_method is "gptq", but only "fp8" is supported)"},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})",
       R"(quantization_config.fmt is "e5m2", but only "e4m3" is supported)"},
      {R"({"quant_method": "fp8", "group_size": 32})",
       "quantization_config.group_size is 32, but only 16 is supported"},
      {R"({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"})",
       R"(quantization_config.kv_cache_quant_algo is "FP8", but only null is supported)"},
      {R"({"quant_method": "fp8", "desc_act": true})",
       "unknown key 'quantization_config.desc_act' could change numerics; remove it if it does not"},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})",
       "quantization_config.weight_block_size is not two integers in [1, 1048576]"},
      {R"({"quant_method": "fp8", "weight_block_size": [0, 128]})",
       "quantization_config.weight_block_size is not two integers in [1, 1048576]"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 1e3]})",
       "quantization_config.weight_block_size is not two integers in [1, 1048576]"},
  };
  for (const auto& [text, message] : rows) {
    const auto block = read(text);
    ASSERT_FALSE(block) << text;
    EXPECT_EQ(block.error().message, message);
  }
}

// Whatever dialect a config comes in, the release's says the same: written once, it is read and written to itself.
TEST(ReleaseConfig, ReadsBackToTheSameNumbers) {
  for (const char* folder : {"phantom/checkpoint", "tests/golden/tiny-random-a"}) {
    const auto config = load_model_config(kSource / folder);
    ASSERT_TRUE(config) << config.error().message;
    for (const ExportForm form : {ExportForm::release, ExportForm::release_fp8_fp4, ExportForm::nvfp4}) {
      const auto text = release_config_text(*config, form, {"layers.0.ffn.experts.0.w1"});
      ASSERT_TRUE(text) << text.error().message;
      const auto again = parse_model_config(*text, "config.json");
      ASSERT_TRUE(again) << again.error().message;
      EXPECT_EQ(*release_config_text(*again, form, {"layers.0.ffn.experts.0.w1"}), *text);
      EXPECT_EQ(again->rope_dim, config->rope_dim);
      EXPECT_EQ(again->compressed_rope.factor, config->compressed_rope.factor);
      EXPECT_EQ(again->layers.size(), config->layers.size());
      for (std::size_t i = 0; i < config->layers.size(); ++i) {
        EXPECT_EQ(again->layers[i].attention, config->layers[i].attention) << i;
        EXPECT_EQ(again->layers[i].moe, config->layers[i].moe) << i;
      }
    }
  }
}

TEST(ReleaseConfig, WhatTheDialectCannotSayIsRefused) {
  ModelConfig config = *load_model_config(kSource / "tests/golden/tiny-random-a");
  config.layers[3].compress_rate = 4;  // heavily compressed
  EXPECT_EQ(release_config_text(config, ExportForm::release, {}).error().message,
            "layer 3: the release's config has no word for this kind of attention at compress rate 4");
}

TEST(ExportForms, HaveNames) {
  for (const char* name : {"release", "release-fp8-fp4", "nvfp4"}) {
    const auto form = export_form_from_name(name);
    ASSERT_TRUE(form) << name;
    EXPECT_EQ(export_form_name(*form), name);
  }
  EXPECT_FALSE(export_form_from_name("gguf"));
}

}  // namespace
}  // namespace plumb
