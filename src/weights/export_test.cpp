#include "weights/export.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "weights/model_hash.h"
#include "weights/test_checkpoint.h"

namespace plumb {
namespace {

const std::filesystem::path kSource = PLUMB_SOURCE_DIR;
const std::filesystem::path kCheckpoint = kSource / "phantom/checkpoint";
const std::filesystem::path kTiny = kSource / "tests/golden/tiny-random-a";
constexpr ExportForm kForms[] = {ExportForm::release, ExportForm::release_fp8_fp4, ExportForm::nvfp4};

ExportSummary exported(const Model& model, ExportForm form, const std::filesystem::path& from,
                       const std::filesystem::path& to) {
  const auto summary = export_checkpoint(model, form, from, to);
  EXPECT_TRUE(summary) << summary.error().message;
  return summary.value_or(ExportSummary{});
}

// The shipped checkpoint is bf16: the release's names and dialect lose nothing.
TEST(Export, ReleaseNamesInBf16AreTheSameModel) {
  const Folder folder;
  const Model model = loaded(kCheckpoint);
  const ExportSummary summary = exported(model, ExportForm::release, kCheckpoint, folder.path());
  EXPECT_EQ(loaded(folder.path()).hash, model.hash);
  for (const ExportPart& part : summary.parts) EXPECT_EQ(part.error, 0) << part.format;
  EXPECT_EQ(read_file(folder.path() / "tokenizer.json"), read_file(kCheckpoint / "tokenizer.json"));
  const Tensors tensors = tensors_of(folder.path() / "model.safetensors");
  EXPECT_EQ(tensors.at("embed.weight").dtype, DType::bf16);
  EXPECT_EQ(tensors.at("layers.2.attn.compressor.wkv.weight").dtype, DType::bf16);
  for (const char* kept : {"layers.0.hc_attn_fn", "layers.2.attn.compressor.ape", "layers.1.attn.attn_sink",
                           "hc_head_scale", "layers.3.ffn.gate.bias"})
    EXPECT_EQ(tensors.at(kept).dtype, DType::f32) << kept;
}

// The shipped checkpoint has extents that blocks of 128 do not divide: its heads, its experts, its output projection.
TEST(Export, Fp8AndFp4StoreWhatTheReleaseStoresThatWay) {
  const Folder folder;
  const Model model = loaded(kCheckpoint);
  exported(model, ExportForm::release_fp8_fp4, kCheckpoint, folder.path());
  const Tensors tensors = tensors_of(folder.path() / "model.safetensors");
  const auto expect = [&](const std::string& name, DType dtype, std::int64_t rows, std::int64_t columns) {
    ASSERT_TRUE(tensors.contains(name)) << name;
    EXPECT_EQ(tensors.at(name).dtype, dtype) << name;
    EXPECT_EQ(tensors.at(name).shape, (std::vector<std::int64_t>{rows, columns})) << name;
  };
  const auto expect_fp8 = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    expect(name + ".weight", DType::f8_e4m3, rows, columns);
    expect(name + ".scale", DType::f8_e8m0, (rows + 127) / 128, (columns + 127) / 128);
  };
  const auto expect_mxfp4 = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    expect(name + ".weight", DType::i8, rows, columns / 2);
    expect(name + ".scale", DType::f8_e8m0, rows, (columns + 31) / 32);
  };
  const ModelConfig& c = model.config;
  const std::int64_t d = c.hidden_size, inner = c.moe_intermediate;
  ASSERT_NE(c.head_dim % 128, 0);
  ASSERT_NE(inner % 128, 0);
  expect_fp8("layers.1.attn.wq_a", c.q_lora_rank, d);
  expect_fp8("layers.1.attn.wq_b", c.heads * c.head_dim, c.q_lora_rank);
  expect_fp8("layers.1.attn.wkv", c.head_dim, d);
  expect_fp8("layers.2.attn.wo_a", c.o_groups * c.o_lora_rank, c.heads / c.o_groups * c.head_dim);
  expect_fp8("layers.2.attn.wo_b", d, c.o_groups * c.o_lora_rank);
  expect_fp8("layers.2.attn.indexer.wq_b", c.index_heads * c.index_head_dim, c.q_lora_rank);
  expect_fp8("layers.6.ffn.shared_experts.w1", inner, d);
  expect_fp8("layers.6.ffn.shared_experts.w2", d, inner);
  expect_mxfp4("layers.0.ffn.experts.7.w1", inner, d);
  expect_mxfp4("layers.0.ffn.experts.7.w3", inner, d);
  expect_mxfp4("layers.0.ffn.experts.7.w2", d, inner);
  expect("layers.2.attn.compressor.wkv.weight", DType::bf16, 2 * c.head_dim, d);
  expect("layers.2.attn.indexer.compressor.wgate.weight", DType::bf16, 2 * c.index_head_dim, d);
  expect("layers.2.attn.indexer.weights_proj.weight", DType::bf16, c.index_heads, d);
  expect("layers.2.ffn.gate.weight", DType::bf16, c.experts, d);
  expect("head.weight", DType::bf16, c.vocab_size, d);
  expect("layers.1.ffn.gate.tid2eid", DType::i64, c.vocab_size, c.experts_per_token);
  EXPECT_FALSE(tensors.contains("layers.2.ffn.gate.scale"));
}

// What a block format can hold it holds: exporting an export changes no weight.
TEST(Export, AnExportOfAnExportIsTheSameModel) {
  const Folder folder;
  const auto once = folder.path() / "once", twice = folder.path() / "twice";
  exported(loaded(kCheckpoint), ExportForm::release_fp8_fp4, kCheckpoint, once);
  const Model model = loaded(once);
  const ExportSummary summary = exported(model, ExportForm::release_fp8_fp4, once, twice);
  EXPECT_EQ(loaded(twice).hash, model.hash);
  for (const ExportPart& part : summary.parts) EXPECT_EQ(part.error, 0) << part.format;
}

TEST(Export, Nvfp4HasItsScalarsItsManifestAndSharedScalesOfW1AndW3) {
  const Folder folder;
  const Model model = loaded(kCheckpoint);
  exported(model, ExportForm::nvfp4, kCheckpoint, folder.path());
  const auto file = SafetensorsFile::open(folder.path() / "model.safetensors");
  ASSERT_TRUE(file);
  const auto scalar = [&](const std::string& name) {
    EXPECT_EQ(file->find(name)->shape, std::vector<std::int64_t>{}) << name;
    return file->read_f32(name)->front();
  };
  const std::string expert = "layers.3.ffn.experts.2.";
  EXPECT_EQ(file->find(expert + "w1.weight")->dtype, DType::u8);
  EXPECT_EQ(file->find(expert + "w1.weight_scale")->shape,
            (std::vector<std::int64_t>{model.config.moe_intermediate, model.config.hidden_size / 16}));
  EXPECT_EQ(file->find(expert + "w2.weight_scale")->shape,
            (std::vector<std::int64_t>{model.config.hidden_size, model.config.moe_intermediate / 16}));
  EXPECT_EQ(scalar(expert + "w1.weight_scale_2"), scalar(expert + "w3.weight_scale_2"));
  EXPECT_EQ(scalar(expert + "w1.input_scale"), scalar(expert + "w3.input_scale"));
  // No input of w2 is larger than silu(limit) * limit, times what the router may scale it by.
  const double limit = model.config.swiglu_limit;
  EXPECT_NEAR(scalar(expert + "w2.input_scale") * 2688 / (limit / (1 + std::exp(-limit)) * limit),
              model.config.routed_scaling_factor, 1e-5);
  EXPECT_EQ(file->find("layers.3.ffn.shared_experts.w1.weight")->dtype, DType::f8_e4m3);
  EXPECT_EQ(file->find(expert + "w1.scale"), nullptr);
  const auto manifest = nlohmann::json::parse(read_file(folder.path() / "hf_quant_config.json"));
  const auto& layers = manifest["quantization"]["quantized_layers"];
  EXPECT_EQ(std::ssize(layers), std::ssize(model.config.layers) * model.config.experts * 3);
  EXPECT_EQ(layers[expert + "w2"]["quant_algo"], "NVFP4");
}

// Every quantised tensor has the bytes that numpy and ml_dtypes give it; tests/golden/exports/README.md says how.
TEST(Export, QuantisedTensorsAreThoseOfAnIndependentImplementation) {
  const auto digests = nlohmann::json::parse(read_file(kSource / "tests/golden/exports/digests.json"));
  const Model model = loaded(kTiny);
  for (const ExportForm form : kForms) {
    const Folder folder;
    exported(model, form, kTiny, folder.path());
    const Tensors tensors = tensors_of(folder.path() / "model.safetensors");
    const auto& want = digests[std::string(export_form_name(form))];
    std::size_t seen = 0;
    for (const auto& [name, tensor] : tensors) {
      if (dtype_bytes(tensor.dtype) != 1 && !want.contains(name)) continue;
      ++seen;
      ASSERT_TRUE(want.contains(name)) << name;
      const std::string digest =
          sha256_hex({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}).substr(0, 16);
      EXPECT_EQ(digest, want[name]) << export_form_name(form) << " " << name;
    }
    EXPECT_EQ(seen, want.size()) << export_form_name(form);
  }
}

TEST(Export, ARefusedExportLeavesNothing) {
  const Folder folder;
  Model model = loaded(kTiny);
  const auto refused = [&](const std::filesystem::path& to, ExportForm form) {
    const auto summary = export_checkpoint(model, form, kTiny, to);
    EXPECT_FALSE(summary);
    return summary ? std::string() : summary.error().message;
  };
  folder.write("note", "x");
  EXPECT_EQ(refused(folder.path(), ExportForm::release),
            folder.path().string() + ": holds files already; name a folder that is empty or not there yet");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "config.json"));
  EXPECT_EQ(refused(folder.path() / "note", ExportForm::release), (folder.path() / "note").string() + ": not a folder");
  model.config.layers[3].moe = MoeKind::scored;
  model.config.layers[4].moe = MoeKind::hash;
  const auto to = folder.path() / "new";
  model.weights.layers[4].moe.token_experts = model.weights.layers[0].moe.token_experts;
  EXPECT_EQ(refused(to, ExportForm::release),
            "layer 4: hashed after a scored layer; the release's config can only hash the first layers");
  model.config.layers[4].moe = MoeKind::scored;
  model.weights.head.mutable_view().data()[3] = 3.4e38f;
  EXPECT_EQ(refused(to, ExportForm::release).substr(0, 40), "weight 'head.weight': element 192 is 3.4");
  EXPECT_FALSE(std::filesystem::exists(to));
}

}  // namespace
}  // namespace plumb
