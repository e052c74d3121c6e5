#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "weights/export.h"
#include "weights/test_checkpoint.h"

namespace plumb {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(PLUMB_SOURCE_DIR) / "tests/golden/tiny-random-a";

/// tiny-random-a in a form; `folder` holds it.
Tensors exported(ExportForm form, const Folder& folder) {
  const auto summary = export_checkpoint(loaded(kTiny), form, kTiny, folder.path());
  EXPECT_TRUE(summary) << summary.error().message;
  return tensors_of(folder.path() / "model.safetensors");
}

struct BadWeight {
  const char* name;
  ExportForm form;
  std::function<void(Tensors&)> damage;
  const char* message;  // follows the path of model.safetensors
};

class QuantisedBad : public testing::TestWithParam<BadWeight> {};

TEST_P(QuantisedBad, IsRefusedWithItsReason) {
  const Folder folder;
  Tensors tensors = exported(GetParam().form, folder);
  GetParam().damage(tensors);
  const auto file = folder.path() / "model.safetensors";
  write_tensors(tensors, file);
  const auto model = load_model(folder.path());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message, file.string() + GetParam().message);
}

constexpr ExportForm kRelease = ExportForm::release_fp8_fp4, kNvfp4 = ExportForm::nvfp4;
const std::string kQ = "layers.0.attn.wq_b", kE = "layers.2.ffn.experts.3.w1";

void cut(Tensor& tensor, std::vector<std::int64_t> shape, std::size_t bytes) {
  tensor.shape = std::move(shape);
  tensor.bytes.resize(bytes);
}

const BadWeight kBadWeights[] = {
    {"Fp8ScaleMissing", kRelease, [](Tensors& t) { t.erase(kQ + ".scale"); },
     ": tensor 'layers.0.attn.wq_b.weight': its scales are missing: there is no tensor 'layers.0.attn.wq_b.scale'; FP8 "
     "has one scale a block of 128 x 128"},
    {"Fp8ScaleTwice", kRelease, [](Tensors& t) { t[kQ + ".weight_scale_inv"] = t[kQ + ".scale"]; },
     ": tensors 'layers.0.attn.wq_b.scale' and 'layers.0.attn.wq_b.weight_scale_inv' are the same weight"},
    {"Fp8ScaleShape", kRelease, [](Tensors& t) { cut(t[kQ + ".scale"], {1, 2}, 2); },
     ": tensor 'layers.0.attn.wq_b.scale': expected shape [1, 1] (one scale a block of 128 x 128 of [128, 24]), found "
     "[1, 2]"},
    {"Fp8ScaleDtype", kRelease,
     [](Tensors& t) {
       t[kQ + ".scale"].dtype = DType::bf16;
       cut(t[kQ + ".scale"], {1, 1}, 2);
     },
     ": tensor 'layers.0.attn.wq_b.scale': expected dtype F8_E8M0 or F32, found BF16"},
    {"Fp8ScaleNan", kRelease, [](Tensors& t) { t[kQ + ".scale"].set(0, std::uint8_t{0xff}); },
     ": tensor 'layers.0.attn.wq_b.scale': scale 0 is nan: scales must be finite and not negative"},
    {"Fp8ScaleNegative", kRelease,
     [](Tensors& t) {
       t[kQ + ".scale"].dtype = DType::f32;
       cut(t[kQ + ".scale"], {1, 1}, 4);
       t[kQ + ".scale"].set(0, -0.5f);
     },
     ": tensor 'layers.0.attn.wq_b.scale': scale 0 is -0.5: scales must be finite and not negative"},
    {"Fp8WeightNan", kRelease, [](Tensors& t) { t[kQ + ".weight"].set(70, std::uint8_t{0x7f}); },
     ": tensor 'layers.0.attn.wq_b.weight': element 70 is nan: not finite"},
    {"Fp8Overflow", kRelease,
     [](Tensors& t) {
       t[kQ + ".scale"].set(0, std::uint8_t{0xfe});
       t[kQ + ".weight"].set(5, std::uint8_t{0x40});
       for (std::size_t i = 0; i < 5; ++i) t[kQ + ".weight"].set(i, std::uint8_t{0});
     },
     ": tensor 'layers.0.attn.wq_b.weight': element 5 is inf: not finite"},
    {"Fp8WeightShape", kRelease, [](Tensors& t) { cut(t[kQ + ".weight"], {128, 23}, 128 * 23); },
     ": tensor 'layers.0.attn.wq_b.weight': expected shape [128, 24], found [128, 23]"},
    {"Fp8Norm", kRelease,
     [](Tensors& t) {
       t["norm.weight"].dtype = DType::f8_e4m3;
       t["norm.weight"].bytes.resize(64);
     },
     ": tensor 'norm.weight': expected dtype F32 or BF16, found F8_E4M3: only matrices '.weight' besides the embedding "
     "may be quantised"},
    {"Fp8Embedding", kRelease,
     [](Tensors& t) {
       t["embed.weight"].dtype = DType::f8_e4m3;
       t["embed.weight"].bytes.resize(256 * 64);
     },
     ": tensor 'embed.weight': expected dtype F32 or BF16, found F8_E4M3: only matrices '.weight' besides the "
     "embedding "
     "may be quantised"},
    {"HalfPrecision", kRelease, [](Tensors& t) { t["head.weight"].dtype = DType::f16; },
     ": tensor 'head.weight': expected dtype F32 or BF16 (or F8_E4M3, I8 or U8 with scales), found F16"},
    {"Fp4ScaleMissing", kRelease, [](Tensors& t) { t.erase(kE + ".scale"); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight': its scales are missing: neither 'layers.2.ffn.experts.3.w1.scale' "
     "(MXFP4) nor 'layers.2.ffn.experts.3.w1.weight_scale' (NVFP4) is there"},
    {"Fp4OddWidth", kRelease, [](Tensors& t) { cut(t[kE + ".weight"], {32, 31}, 32 * 31); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight': expected shape [32, 32] (two FP4 codes a byte of [32, 64]), found "
     "[32, 31]"},
    {"Fp4ScaleShape", kRelease, [](Tensors& t) { cut(t[kE + ".scale"], {32, 1}, 32); },
     ": tensor 'layers.2.ffn.experts.3.w1.scale': expected shape [32, 2] (one scale for 32 columns of a row of [32, "
     "64]), found [32, 1]"},
    {"Fp4ScaleNan", kRelease, [](Tensors& t) { t[kE + ".scale"].set(9, std::uint8_t{0xff}); },
     ": tensor 'layers.2.ffn.experts.3.w1.scale': scale 9 is nan: scales must be finite and not negative"},
    {"Fp4ScaleDtype", kRelease, [](Tensors& t) { t[kE + ".scale"].dtype = DType::f8_e4m3; },
     ": tensor 'layers.2.ffn.experts.3.w1.scale': expected dtype F8_E8M0, found F8_E4M3"},
    {"Fp4WithoutWeights", kRelease, [](Tensors& t) { t.erase(kE + ".weight"); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight' of shape [32, 64] is missing; config.json asks for it"},
    {"Nvfp4BlockScalesMissing", kNvfp4, [](Tensors& t) { t.erase(kE + ".weight_scale"); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight': its scales are missing: there is no tensor "
     "'layers.2.ffn.experts.3.w1.weight_scale'; one scale for 16 columns of a row"},
    {"Nvfp4SecondScaleMissing", kNvfp4, [](Tensors& t) { t.erase(kE + ".weight_scale_2"); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight': its scales are missing: there is no tensor "
     "'layers.2.ffn.experts.3.w1.weight_scale_2'; NVFP4 has one such scale a matrix"},
    {"Nvfp4SecondScaleNan", kNvfp4, [](Tensors& t) { t[kE + ".weight_scale_2"].set(0, std::nanf("")); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight_scale_2': nan is no positive finite scale"},
    {"Nvfp4SecondScaleShape", kNvfp4, [](Tensors& t) { cut(t[kE + ".weight_scale_2"], {2}, 8); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight_scale_2': expected one F32 value, found F32 [2]"},
    {"Nvfp4InputScaleZero", kNvfp4, [](Tensors& t) { t[kE + ".input_scale"].set(0, 0.0f); },
     ": tensor 'layers.2.ffn.experts.3.w1.input_scale': 0 is no positive finite scale"},
    {"Nvfp4BlockScaleNan", kNvfp4, [](Tensors& t) { t[kE + ".weight_scale"].set(17, std::uint8_t{0x7f}); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight_scale': scale 17 is nan: scales must be finite and not negative"},
    {"Nvfp4BlockScaleShape", kNvfp4, [](Tensors& t) { cut(t[kE + ".weight_scale"], {4, 32}, 128); },
     ": tensor 'layers.2.ffn.experts.3.w1.weight_scale': expected shape [32, 4] (one scale for 16 columns of a row of "
     "[32, 64]), found [4, 32]"},
    {"BothFp4Formats", kNvfp4,
     [](Tensors& t) { t[kE + ".scale"] = {DType::f8_e8m0, {32, 2}, std::vector<std::byte>(64)}; },
     ": tensor 'layers.2.ffn.experts.3.w1.weight': has both MXFP4's 'layers.2.ffn.experts.3.w1.scale' and NVFP4's "
     "'layers.2.ffn.experts.3.w1.weight_scale'; remove those not meant"},
    {"ScaleOfAPlainWeight", kRelease, [](Tensors& t) { t["head.scale"] = t[kQ + ".scale"]; },
     ": tensor 'head.scale' of shape [1, 1] is not part of the model that config.json describes, in the release's "
     "names"},
};

INSTANTIATE_TEST_SUITE_P(Table, QuantisedBad, testing::ValuesIn(kBadWeights),
                         [](const auto& bad) { return std::string(bad.param.name); });

// Other spellings of the same numbers: f32 scales as -Base checkpoints have them, scales under transformers' name, U8
// and I8 for packed codes, no input_scale.
TEST(Quantised, OtherSpellingsLoadToTheSameHash) {
  const Folder folder;
  const auto file = folder.path() / "model.safetensors";
  Tensors tensors = exported(kRelease, folder);
  const std::string hash = loaded(folder.path()).hash;
  Tensor& scale = tensors[kQ + ".scale"];
  const float value = std::ldexp(1.0f, static_cast<int>(scale.bytes[0]) - 127);
  scale.dtype = DType::f32;
  cut(scale, {1, 1}, 4);
  scale.set(0, value);
  tensors[kE + ".weight"].dtype = DType::u8;
  auto node = tensors.extract("layers.1.attn.wq_a.scale");
  node.key() = "layers.1.attn.wq_a.weight_scale_inv";
  tensors.insert(std::move(node));
  write_tensors(tensors, file);
  EXPECT_EQ(loaded(folder.path()).hash, hash);

  std::filesystem::remove_all(folder.path());
  tensors = exported(kNvfp4, folder);
  const std::string nvfp4_hash = loaded(folder.path()).hash;
  EXPECT_NE(nvfp4_hash, hash);
  tensors.erase(kE + ".input_scale");
  tensors[kE + ".weight"].dtype = DType::i8;
  tensors[kE + ".weight_scale_2"].shape = {1};
  write_tensors(tensors, file);
  EXPECT_EQ(loaded(folder.path()).hash, nvfp4_hash);
}

// -Base: routed experts in FP8 blocks, scales f32; the block is what the config says.
TEST(Quantised, Fp8ExpertsWithAnotherBlockAreDecoded) {
  const Folder folder;
  Tensors tensors = exported(ExportForm::release, folder);
  std::string config = read_file(folder.path() / "config.json");
  config.insert(config.rfind('}'), R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[20,48]})");
  folder.write("config.json", config);
  Tensor codes{DType::f8_e4m3, {32, 64}, std::vector<std::byte>(32 * 64)};
  for (std::size_t i = 0; i < codes.bytes.size(); ++i) codes.set(i, static_cast<std::uint8_t>(i % 0x7f));
  Tensor scales{DType::f32, {2, 2}, std::vector<std::byte>(16)};
  for (std::size_t i = 0; i < 4; ++i) scales.set(i, 0.25f * static_cast<float>(i + 1));
  tensors[kE + ".weight"] = codes;
  tensors[kE + ".scale"] = scales;
  write_tensors(tensors, folder.path() / "model.safetensors");
  const Model model = loaded(folder.path());
  const auto gate = model.weights.layers[2].moe.experts[3].gate.view();
  // 0x38 is 1, 0x30 is 0.5; [out, in] of the file is [in, out] in memory.
  EXPECT_EQ(gate(0x38, 0), 0.25f * 2);
  EXPECT_EQ(gate(0x30, 0), 0.25f * 0.5f * 2);
  for (std::int64_t o = 0; o < 32; ++o)
    for (std::int64_t i = 0; i < 64; ++i) {
      const std::int64_t code = (o * 64 + i) % 0x7f, exponent = code / 8, mantissa = code % 8;
      const double value = exponent == 0
                               ? std::ldexp(static_cast<double>(mantissa), -9)
                               : std::ldexp(8.0 + static_cast<double>(mantissa), static_cast<int>(exponent) - 10);
      ASSERT_EQ(gate(i, o), value * 0.25 * static_cast<double>(1 + o / 20 * 2 + i / 48)) << o << " " << i;
    }
}

TEST(Quantised, StackedExpertsAreRefusedWithAWayOut) {
  const Folder folder;
  Tensors tensors = tensors_of(kTiny / "model.safetensors");
  Tensor& stacked = tensors["model.layers.4.mlp.experts.down_proj"];
  stacked.dtype = DType::f8_e4m3;
  stacked.bytes.resize(stacked.bytes.size() / 4);
  folder.write("config.json", read_file(kTiny / "config.json"));
  write_tensors(tensors, folder.path() / "model.safetensors");
  EXPECT_EQ(load_model(folder.path()).error().message,
            (folder.path() / "model.safetensors").string() +
                ": tensor 'model.layers.4.mlp.experts.down_proj': expected dtype F32 or BF16, found F8_E4M3: stacked "
                "experts are read unquantised only; quantised ones have the release's names, one tensor an expert");
}

}  // namespace
}  // namespace plumb
