#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tensor/safetensors.h"
#include "weights/export.h"
#include "weights/model.h"
#include "weights/model_hash.h"
#include "weights/test_checkpoint.h"

namespace plumb {
namespace {

const std::filesystem::path kSource = PLUMB_SOURCE_DIR;
const std::filesystem::path kPhantom = kSource / "phantom/checkpoint";
const std::filesystem::path kTiny = kSource / "tests/golden/tiny-random-a";

TEST(Checkpoint, ProjectionsAreTransposedAndExpertsUnstacked) {
  const Model model = loaded(kTiny);
  const auto file = SafetensorsFile::open(kTiny / "model.safetensors");
  ASSERT_TRUE(file);
  const ModelConfig& c = model.config;
  const LayerWeights& layer = model.weights.layers[2];
  const std::string at = "model.layers.2.";
  const auto raw = [&](const std::string& name) { return *file->read_f32(name); };

  const auto q_b = raw(at + "self_attn.q_b_proj.weight");
  const auto view = layer.attention.q_b.view();
  ASSERT_EQ(view.extent(0), c.q_lora_rank);
  for (std::int64_t out = 0; out < c.heads * c.head_dim; ++out)
    for (std::int64_t in = 0; in < c.q_lora_rank; ++in)
      ASSERT_EQ(view(in, out), q_b[static_cast<std::size_t>(out * c.q_lora_rank + in)]);

  // Row g*rank + r of the file is output r of group g.
  const auto o_a = raw(at + "self_attn.o_a_proj.weight");
  const auto grouped = layer.attention.o_a.view();
  const std::int64_t width = c.heads / c.o_groups * c.head_dim;
  for (std::int64_t g = 0; g < c.o_groups; ++g)
    for (std::int64_t r = 0; r < c.o_lora_rank; ++r)
      for (std::int64_t i = 0; i < width; ++i)
        ASSERT_EQ(grouped(g, i, r), o_a[static_cast<std::size_t>((g * c.o_lora_rank + r) * width + i)]);

  const auto gate_up = raw(at + "mlp.experts.gate_up_proj");
  const auto down = raw(at + "mlp.experts.down_proj");
  const std::int64_t inner = c.moe_intermediate, d = c.hidden_size;
  for (std::int64_t e = 0; e < c.experts; ++e) {
    const MlpWeights& expert = layer.moe.experts[static_cast<std::size_t>(e)];
    for (std::int64_t i = 0; i < inner; ++i)
      for (std::int64_t k = 0; k < d; ++k) {
        ASSERT_EQ(expert.gate.view()(k, i), gate_up[static_cast<std::size_t>((e * 2 * inner + i) * d + k)]);
        ASSERT_EQ(expert.up.view()(k, i), gate_up[static_cast<std::size_t>((e * 2 * inner + inner + i) * d + k)]);
        ASSERT_EQ(expert.down.view()(i, k), down[static_cast<std::size_t>((e * d + k) * inner + i)]);
      }
  }
  const auto ids = *file->read_i64("model.layers.1.mlp.gate.tid2eid");
  const auto table = model.weights.layers[1].moe.token_experts.view();
  EXPECT_TRUE(std::equal(ids.begin(), ids.end(), table.span().begin(), table.span().end()));
  const auto embedding = raw("model.embed_tokens.weight");
  EXPECT_EQ(model.weights.embedding.view()(3, 5), embedding[static_cast<std::size_t>(3 * d + 5)]);
  const auto bias = raw(at + "self_attn.compressor.position_bias");
  EXPECT_EQ(layer.attention.compressor.position_bias.view().extents(),
            (std::array<std::int64_t, 2>{4, 2 * c.head_dim}));
  EXPECT_TRUE(std::equal(bias.begin(), bias.end(), layer.attention.compressor.position_bias.view().data()));
  EXPECT_TRUE(model.weights.layers[0].attention.compressor.kv.empty());
  EXPECT_TRUE(model.weights.layers[3].attention.indexer.q_b.empty());
  EXPECT_TRUE(model.weights.layers[1].moe.router_bias.empty());
}

TEST(Checkpoint, Bf16IsWidenedExactly) {
  const Model model = loaded(kPhantom);
  const Tensors raw = tensors_of(kPhantom / "model.safetensors");
  const Tensor& norm = raw.at("model.layers.2.input_layernorm.weight");
  ASSERT_EQ(norm.dtype, DType::bf16);
  const auto view = model.weights.layers[2].attention.norm.view();
  for (std::int64_t i = 0; i < view.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, norm.bytes.data() + 2 * i, 2);
    EXPECT_EQ(view(i), bf16_to_f32(bits));
  }
  EXPECT_EQ(model.hash.size(), 32u);
}

// A config in transformers' nested form as the older flat one: the YaRN of the compressed layers stands alone.
std::string flat_config(nlohmann::json nested) {
  nested["rope_parameters"] = nested["rope_parameters"]["compress"];
  for (const char* key : {"rope_theta", "partial_rotary_factor", "attention_factor"})
    nested["rope_parameters"].erase(key);
  return nested.dump();
}

// The same as the release writes it: rates and counts in place of names.
std::string release_config(nlohmann::json nested) {
  nested["rope_scaling"] = nested["rope_parameters"]["compress"];
  nested["rope_scaling"].erase("rope_theta");
  nested["rope_scaling"].erase("partial_rotary_factor");
  nested["rope_scaling"].erase("attention_factor");
  nested["rope_scaling"]["type"] = nested["rope_scaling"]["rope_type"];
  nested["rope_scaling"].erase("rope_type");
  nested["compress_ratios"] = {0, 0, 4, 128, 4, 128, 0};  // the last is that of the MTP layer
  nested["num_nextn_predict_layers"] = 1;
  nested["num_hash_layers"] = 2;
  for (const char* key : {"layer_types", "compress_rates", "mlp_layer_types", "rope_parameters"}) nested.erase(key);
  return nested.dump();
}

// One model, every way to store it: the hash is the same, so every weight is.
TEST(Checkpoint, EveryNamingDialectStorageAndShardingLoadsToTheSameHash) {
  const Model model = loaded(kTiny);
  const auto nested = nlohmann::json::parse(read_file(kTiny / "config.json"));
  const Folder folder;
  const auto file = folder.path() / "model.safetensors";

  folder.write("config.json", flat_config(nested));
  ASSERT_TRUE(export_weights(model, Naming::transformers, file));
  EXPECT_EQ(loaded(folder.path()).hash, model.hash) << "transformers, f32, flat config";

  Tensors older = tensors_of(file);
  for (const char* layer : {"2", "4"}) {
    const std::string at = std::string("model.layers.") + layer + ".self_attn.compressor.indexer.";
    auto node = older.extract(at + "scorer.weights_proj.weight");
    ASSERT_FALSE(node.empty());
    node.key() = at + "weights_proj.weight";
    older.insert(std::move(node));
  }
  write_tensors(older, file);
  EXPECT_EQ(loaded(folder.path()).hash, model.hash) << "older spelling of the indexer's head weights";

  folder.write("config.json", release_config(nested));
  ASSERT_TRUE(export_weights(model, Naming::release, file));
  Tensors release = tensors_of(file);
  EXPECT_EQ(loaded(folder.path()).hash, model.hash) << "release, f32, release config";

  Tensor& table = release.at("layers.0.ffn.gate.tid2eid");
  std::vector<std::int64_t> ids(table.bytes.size() / 8);
  std::memcpy(ids.data(), table.bytes.data(), table.bytes.size());
  table.dtype = DType::i32;
  table.bytes.resize(ids.size() * 4);
  for (std::size_t i = 0; i < ids.size(); ++i) table.set(i, static_cast<std::int32_t>(ids[i]));
  release["mtp.0.e_proj.weight"] = {DType::f8_e4m3, {4, 4}, std::vector<std::byte>(16)};
  Tensors shards[2];
  std::string map;
  for (auto& [name, tensor] : release) {
    const bool second = name > "layers.3";
    map += (map.empty() ? "\"" : ",\"") + name + "\":\"model-0000" + (second ? "2" : "1") + "-of-00002.safetensors\"";
    shards[second ? 1 : 0][name] = std::move(tensor);
  }
  std::filesystem::remove(file);
  folder.write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
  write_tensors(shards[0], folder.path() / "model-00001-of-00002.safetensors");
  write_tensors(shards[1], folder.path() / "model-00002-of-00002.safetensors");
  const Model sharded = loaded(folder.path());
  EXPECT_EQ(sharded.hash, model.hash) << "release, two shards, i32 ids, an MTP tensor";
  EXPECT_EQ(sharded.skipped_mtp_tensors, 1);
}

TEST(Checkpoint, HashSeesEveryWeightAndEveryNumericField) {
  Model model = loaded(kTiny);
  EXPECT_EQ(model_hash(model.config, model.weights), model.hash);
  std::size_t changed = 0;
  for (const Slot& slot : list_slots(model.config, model.weights)) {
    if (changed++ % 7 != 0) continue;  // every seventh: each takes a pass over all weights
    float* const last = slot.values == nullptr ? nullptr : slot.values + slot.count() - 1;
    if (last != nullptr)
      *last = std::nextafter(*last, 1e9f);
    else
      slot.ids[0] ^= 1;
    EXPECT_NE(model_hash(model.config, model.weights), model.hash) << slot.name;
    if (last != nullptr)
      *last = std::nextafter(*last, -1e9f);
    else
      slot.ids[0] ^= 1;
  }
  EXPECT_EQ(model_hash(model.config, model.weights), model.hash);
  ModelConfig config = model.config;
  config.name = "another";
  EXPECT_EQ(model_hash(config, model.weights), model.hash);
  const std::function<void(ModelConfig&)> edits[] = {[](ModelConfig& c) { c.routed_scaling_factor = 2.5; },
                                                     [](ModelConfig& c) { c.window += 1; },
                                                     [](ModelConfig& c) { c.compressed_rope.beta_fast = 31; },
                                                     [](ModelConfig& c) { c.window_rope.theta += 1; },
                                                     [](ModelConfig& c) { c.index_topk -= 1; },
                                                     [](ModelConfig& c) { c.hc_sinkhorn_iters = 3; },
                                                     [](ModelConfig& c) { c.profile = Profile::official; },
                                                     [](ModelConfig& c) { c.rope_dim -= 2; }};
  for (const auto& edit : edits) {
    ModelConfig edited = model.config;
    edit(edited);
    EXPECT_NE(model_hash(edited, model.weights), model.hash);
  }
}

struct BadCheckpoint {
  const char* name;
  std::function<void(Tensors&)> damage;
  const char* message;  // follows the path of model.safetensors
};

class CheckpointBad : public testing::TestWithParam<BadCheckpoint> {};

TEST_P(CheckpointBad, IsRefusedWithItsReason) {
  const Folder folder;
  Tensors tensors = tensors_of(kTiny / "model.safetensors");
  GetParam().damage(tensors);
  folder.write("config.json", read_file(kTiny / "config.json"));
  const auto file = folder.path() / "model.safetensors";
  write_tensors(tensors, file);
  const auto model = load_model(folder.path());
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message, file.string() + GetParam().message);
}

constexpr const char* kQA = "model.layers.0.self_attn.q_a_proj.weight";
constexpr const char* kIds = "model.layers.1.mlp.gate.tid2eid";
constexpr const char* kHeads = "model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight";

const BadCheckpoint kBadCheckpoints[] = {
    {"Missing", [](Tensors& t) { t.erase("model.norm.weight"); },
     ": tensor 'model.norm.weight' of shape [64] is missing; config.json asks for it"},
    {"MissingExperts", [](Tensors& t) { t.erase("model.layers.4.mlp.experts.down_proj"); },
     ": tensor 'model.layers.4.mlp.experts.down_proj' of shape [8, 64, 32] is missing; config.json asks for it"},
    {"Unknown", [](Tensors& t) { t["model.layers.6.input_layernorm.weight"] = t["model.norm.weight"]; },
     ": tensor 'model.layers.6.input_layernorm.weight' of shape [64] is not part of the model that config.json "
     "describes, in transformers' names"},
    {"MixedNamings", [](Tensors& t) { t["norm.weight"] = t["model.norm.weight"]; },
     ": tensor 'norm.weight' of shape [64] is not part of the model that config.json describes, in transformers' "
     "names"},
    {"OtherModel", [](Tensors& t) { t.erase("model.embed_tokens.weight"); },
     ": neither 'embed.weight' (the release's names) nor 'model.embed_tokens.weight' (transformers') is there: not a "
     "DeepSeek-V4 checkpoint in a known naming"},
    {"Transposed", [](Tensors& t) { std::swap(t[kQA].shape[0], t[kQA].shape[1]); },
     ": tensor 'model.layers.0.self_attn.q_a_proj.weight': expected shape [24, 64], found [64, 24]"},
    {"Rank", [](Tensors& t) { t["model.norm.weight"].shape = {64, 1}; },
     ": tensor 'model.norm.weight': expected shape [64], found [64, 1]"},
    {"Quantised",
     [](Tensors& t) {
       t[kQA].dtype = DType::f8_e4m3;
       t[kQA].bytes.resize(t[kQA].bytes.size() / 4);
     },
     ": tensor 'model.layers.0.self_attn.q_a_proj.weight': its scales are missing: there is no tensor "
     "'model.layers.0.self_attn.q_a_proj.scale'; FP8 has one scale a block of 128 x 128"},
    {"FloatIds", [](Tensors& t) { t[kIds].dtype = DType::f64; },
     ": tensor 'model.layers.1.mlp.gate.tid2eid': expected dtype I64 or I32, found F64"},
    {"NaN", [](Tensors& t) { t[kQA].set(70, std::nanf("")); },
     ": tensor 'model.layers.0.self_attn.q_a_proj.weight': element 70 is nan: not finite"},
    {"Infinite",
     [](Tensors& t) {
       t["model.layers.3.mlp.experts.down_proj"].set(2 * 64 * 32 + 5, -std::numeric_limits<float>::infinity());
     },
     ": tensor 'model.layers.3.mlp.experts.down_proj': element 4101 is -inf: not finite"},
    {"ExpertOutside", [](Tensors& t) { t[kIds].set(10, std::int64_t{8}); },
     ": tensor 'model.layers.1.mlp.gate.tid2eid': token 5 has expert 8, outside [0, 8)"},
    {"ExpertNegative", [](Tensors& t) { t[kIds].set(511, std::int64_t{-1}); },
     ": tensor 'model.layers.1.mlp.gate.tid2eid': token 255 has expert -1, outside [0, 8)"},
    {"ExpertTwice",
     [](Tensors& t) {
       t[kIds].set(20, std::int64_t{3});
       t[kIds].set(21, std::int64_t{3});
     },
     ": tensor 'model.layers.1.mlp.gate.tid2eid': token 10 has expert 3 twice"},
    {"BothSpellings",
     [](Tensors& t) { t["model.layers.2.self_attn.compressor.indexer.weights_proj.weight"] = t[kHeads]; },
     ": tensors 'model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight' and "
     "'model.layers.2.self_attn.compressor.indexer.weights_proj.weight' are the same weight"},
};

INSTANTIATE_TEST_SUITE_P(Table, CheckpointBad, testing::ValuesIn(kBadCheckpoints),
                         [](const auto& bad) { return std::string(bad.param.name); });

TEST(Checkpoint, BadFoldersAndIndexesAreRefused) {
  const Folder folder;
  const std::string at = folder.path().string();
  const std::string index = at + "/model.safetensors.index.json";
  const auto message = [&] { return load_model(folder.path()).error().message; };
  EXPECT_EQ(message(), at + "/config.json: cannot be opened: No such file or directory");
  folder.write("config.json", read_file(kTiny / "config.json"));
  EXPECT_EQ(message(), at + ": holds neither model.safetensors nor model.safetensors.index.json");
  const auto link = folder.path() / "model.safetensors";
  std::filesystem::create_symlink("model.safetensors", link);
  EXPECT_EQ(message(), link.string() + ": cannot be opened: Too many levels of symbolic links");
  std::filesystem::remove(link);
  std::filesystem::create_symlink("away", link);
  EXPECT_EQ(message(), link.string() + ": cannot be opened: No such file or directory");
  std::filesystem::remove(link);
  folder.write("model.safetensors.index.json", R"({"weight_map": []})");
  EXPECT_EQ(message(), index + ": no object 'weight_map'");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "../b.safetensors"}})");
  EXPECT_EQ(message(), index + ": tensor 'a': '../b.safetensors' is not the name of a safetensors file in this folder");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}})");
  EXPECT_EQ(message(), index + ": key 'a' appears twice in one object");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  EXPECT_EQ(message(), at + "/1.safetensors: cannot be opened: No such file or directory (named by " + index + ")");
  const Tensor one{DType::f32, {1}, std::vector<std::byte>(4)};
  write_tensors({{"a", one}, {"b", one}}, folder.path() / "1.safetensors");
  EXPECT_EQ(message(), at + "/1.safetensors: tensor 'b' is here, but " + index + " puts it into '2.safetensors'");
  write_tensors({{"a", one}, {"c", one}}, folder.path() / "1.safetensors");
  EXPECT_EQ(message(), at + "/1.safetensors: tensor 'c' is not in the weight_map of " + index);
  write_tensors({{"a", one}}, folder.path() / "1.safetensors");
  write_tensors({}, folder.path() / "2.safetensors");
  EXPECT_EQ(message(), index + ": tensor 'b' should be in '2.safetensors', which does not hold it");
  folder.write("model.safetensors", "short");
  EXPECT_EQ(message(),
            at + ": holds model.safetensors and model.safetensors.index.json; remove the one that is not meant");
  std::filesystem::remove(index);
  EXPECT_EQ(message(), at + "/model.safetensors: 5 bytes are too few for a safetensors file: truncated, or another "
                            "format");
}

TEST(Checkpoint, AHugeConfigAsksForNoMemory) {
  const Folder folder;
  std::string config = read_file(kTiny / "config.json");
  const std::string from = "\"vocab_size\": 256";
  config.replace(config.find(from), from.size(), "\"vocab_size\": 16777216");
  folder.write("config.json", config);
  std::filesystem::copy_file(kTiny / "model.safetensors", folder.path() / "model.safetensors");
  EXPECT_EQ(load_model(folder.path()).error().message,
            (folder.path() / "model.safetensors").string() +
                ": tensor 'model.embed_tokens.weight': expected shape [16777216, 64], found [256, 64]");
}

}  // namespace
}  // namespace plumb
