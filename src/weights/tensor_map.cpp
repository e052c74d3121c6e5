#include "weights/tensor_map.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"

namespace plumb {
namespace {

using Layout = Slot::Layout;

struct Renaming {
  std::string_view release;
  std::string_view transformers;
};

// The first match counts, so that the longer names come first. Inside a layer, after "layers.N.".
constexpr std::array kLayerNames{
    Renaming{"attn_norm.weight", "input_layernorm.weight"},
    Renaming{"ffn_norm.weight", "post_attention_layernorm.weight"},
    Renaming{"hc_attn_", "attn_hc."},
    Renaming{"hc_ffn_", "ffn_hc."},
    Renaming{"attn.wq_a.weight", "self_attn.q_a_proj.weight"},
    Renaming{"attn.q_norm.weight", "self_attn.q_a_norm.weight"},
    Renaming{"attn.wq_b.weight", "self_attn.q_b_proj.weight"},
    Renaming{"attn.wkv.weight", "self_attn.kv_proj.weight"},
    Renaming{"attn.kv_norm.weight", "self_attn.kv_norm.weight"},
    Renaming{"attn.wo_a.weight", "self_attn.o_a_proj.weight"},
    Renaming{"attn.wo_b.weight", "self_attn.o_b_proj.weight"},
    Renaming{"attn.attn_sink", "self_attn.sinks"},
    Renaming{"attn.compressor.wkv.weight", "self_attn.compressor.kv_proj.weight"},
    Renaming{"attn.compressor.wgate.weight", "self_attn.compressor.gate_proj.weight"},
    Renaming{"attn.compressor.ape", "self_attn.compressor.position_bias"},
    Renaming{"attn.compressor.norm.weight", "self_attn.compressor.kv_norm.weight"},
    Renaming{"attn.indexer.compressor.wkv.weight", "self_attn.compressor.indexer.kv_proj.weight"},
    Renaming{"attn.indexer.compressor.wgate.weight", "self_attn.compressor.indexer.gate_proj.weight"},
    Renaming{"attn.indexer.compressor.ape", "self_attn.compressor.indexer.position_bias"},
    Renaming{"attn.indexer.compressor.norm.weight", "self_attn.compressor.indexer.kv_norm.weight"},
    Renaming{"attn.indexer.wq_b.weight", "self_attn.compressor.indexer.q_b_proj.weight"},
    Renaming{"attn.indexer.weights_proj.weight", "self_attn.compressor.indexer.scorer.weights_proj.weight"},
    Renaming{"ffn.gate.weight", "mlp.gate.weight"},
    Renaming{"ffn.gate.bias", "mlp.gate.e_score_correction_bias"},
    Renaming{"ffn.gate.tid2eid", "mlp.gate.tid2eid"},
    Renaming{"ffn.shared_experts.w1.weight", "mlp.shared_experts.gate_proj.weight"},
    Renaming{"ffn.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight"},
    Renaming{"ffn.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"},
};

constexpr std::array kTopNames{
    Renaming{"embed.weight", "model.embed_tokens.weight"},
    Renaming{"head.weight", "lm_head.weight"},
    Renaming{"norm.weight", "model.norm.weight"},
    Renaming{"hc_head_", "model.hc_head.hc_"},
};

// Spellings that older conversions wrote instead of the one in the tables above.
constexpr std::array kOlderSpellings{
    Renaming{".indexer.scorer.weights_proj.weight", ".indexer.weights_proj.weight"},
};

constexpr std::string_view kLayerPrefix = "layers.";
constexpr std::string_view kExpertPrefix = "ffn.experts.";

template <std::size_t N>
std::string renamed(std::string_view name, const std::array<Renaming, N>& names) {
  for (const auto& [release, transformers] : names)
    if (name == release || (!release.ends_with(".weight") && name.starts_with(release)))
      return std::string(transformers) + std::string(name.substr(release.size()));
  CHECK(false);  // every slot has a row
  return {};
}

/// Takes "123." off the front.
std::int64_t take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  CHECK(code == std::errc() && *end == '.');
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return number;
}

/// An expert's slot inside transformers' stacked tensors: gate_up_proj [E, 2I, d] (w1 then w3), down_proj [E, d, I].
Source stacked_source(const std::string& prefix, std::string_view rest, const ModelConfig& config) {
  const std::int64_t expert = take_number(rest), d = config.hidden_size, inner = config.moe_intermediate;
  if (rest == "w2.weight") return {{prefix + "mlp.experts.down_proj"}, {config.experts, d, inner}, expert * d * inner};
  CHECK(rest == "w1.weight" || rest == "w3.weight");
  const std::int64_t half = rest == "w3.weight" ? 1 : 0;
  return {{prefix + "mlp.experts.gate_up_proj"}, {config.experts, 2 * inner, d}, (2 * expert + half) * inner * d};
}

Source transformers_source(const Slot& slot, const ModelConfig& config) {
  std::string_view rest = slot.name;
  if (!rest.starts_with(kLayerPrefix)) return {{renamed(rest, kTopNames)}, slot.shape, 0};
  rest.remove_prefix(kLayerPrefix.size());
  const std::string prefix = fmt::format("model.layers.{}.", take_number(rest));
  if (rest.starts_with(kExpertPrefix)) return stacked_source(prefix, rest.substr(kExpertPrefix.size()), config);
  Source source{{prefix + renamed(rest, kLayerNames)}, slot.shape, 0};
  for (const auto& [current, older] : kOlderSpellings)
    if (const std::string name = source.names.front(); name.ends_with(current))
      source.names.push_back(name.substr(0, name.size() - current.size()) + std::string(older));
  return source;
}

/// Builds the list: one call a weight.
class Lister {
 public:
  Lister(const ModelConfig& config, ModelWeights& weights, bool allocate)
      : c_(config), w_(weights), allocate_(allocate) {}

  std::vector<Slot> list() {
    plain("embed.weight", w_.embedding, {c_.vocab_size, c_.hidden_size});
    w_.layers.resize(c_.layers.size());
    for (std::size_t i = 0; i < c_.layers.size(); ++i) layer(fmt::format("layers.{}.", i), c_.layers[i], w_.layers[i]);
    projection("hc_head_fn", w_.head_hc_fn, c_.hc_mult * c_.hidden_size, c_.hc_mult);
    plain("hc_head_base", w_.head_hc_base, {c_.hc_mult});
    plain("hc_head_scale", w_.head_hc_scale, {1});
    plain("norm.weight", w_.norm, {c_.hidden_size});
    projection("head.weight", w_.head, c_.hidden_size, c_.vocab_size);
    return std::move(slots_);
  }

 private:
  template <class T, int R>
  T* place(Array<T, R>& array, const std::array<std::int64_t, R>& extents) {
    if (!allocate_) return nullptr;
    if (array.empty()) array = Array<T, R>(extents);
    CHECK(array.view().extents() == extents);
    return array.mutable_view().data();
  }

  template <int R>
  void plain(std::string name, Array<float, R>& array, const std::array<std::int64_t, R>& extents) {
    slots_.push_back({std::move(name),
                      Layout::plain,
                      {extents.begin(), extents.end()},
                      1,
                      place<float, R>(array, extents),
                      nullptr});
  }
  // Lets braces name the extents of a vector or a matrix.
  void plain(std::string name, Vector& array, std::initializer_list<std::int64_t> extents) {
    plain<1>(std::move(name), array, std::array<std::int64_t, 1>{*extents.begin()});
  }
  void plain(std::string name, Array<float, 2>& array, std::initializer_list<std::int64_t> extents) {
    plain<2>(std::move(name), array, std::array<std::int64_t, 2>{extents.begin()[0], extents.begin()[1]});
  }

  void projection(std::string name, Projection& array, std::int64_t in, std::int64_t out) {
    slots_.push_back({std::move(name), Layout::transposed, {out, in}, 1, place<float, 2>(array, {in, out}), nullptr});
  }

  void layer(const std::string& at, const LayerConfig& kind, LayerWeights& layer_weights) {
    hyper_connection(at + "hc_attn_", layer_weights.attention_hc);
    attention(at, kind, layer_weights.attention);
    hyper_connection(at + "hc_ffn_", layer_weights.moe_hc);
    moe(at, kind, layer_weights.moe);
  }

  void hyper_connection(const std::string& at, HyperConnection& hc) {
    const std::int64_t n = c_.hc_mult, mixes = n * (2 + n);
    projection(at + "fn", hc.fn, n * c_.hidden_size, mixes);
    plain(at + "base", hc.base, {mixes});
    plain(at + "scale", hc.scale, {3});
  }

  void attention(const std::string& at, const LayerConfig& kind, AttentionWeights& a) {
    const std::int64_t d = c_.hidden_size, group_in = c_.heads / c_.o_groups * c_.head_dim;
    plain(at + "attn_norm.weight", a.norm, {d});
    projection(at + "attn.wq_a.weight", a.q_a, d, c_.q_lora_rank);
    plain(at + "attn.q_norm.weight", a.q_norm, {c_.q_lora_rank});
    projection(at + "attn.wq_b.weight", a.q_b, c_.q_lora_rank, c_.heads * c_.head_dim);
    projection(at + "attn.wkv.weight", a.kv, d, c_.head_dim);
    plain(at + "attn.kv_norm.weight", a.kv_norm, {c_.head_dim});
    plain(at + "attn.attn_sink", a.sinks, {c_.heads});
    slots_.push_back({at + "attn.wo_a.weight",
                      Layout::grouped,
                      {c_.o_groups * c_.o_lora_rank, group_in},
                      c_.o_groups,
                      place<float, 3>(a.o_a, {c_.o_groups, group_in, c_.o_lora_rank}),
                      nullptr});
    projection(at + "attn.wo_b.weight", a.o_b, c_.o_groups * c_.o_lora_rank, d);
    if (kind.attention == AttentionKind::sliding) return;
    const bool sparse = kind.attention == AttentionKind::compressed_sparse;
    const std::int64_t halves = sparse ? 2 : 1;  // sparse rows overlap: two halves
    compressor(at + "attn.compressor.", a.compressor, kind.compress_rate, halves, c_.head_dim);
    if (!sparse) return;
    projection(at + "attn.indexer.wq_b.weight", a.indexer.q_b, c_.q_lora_rank, c_.index_heads * c_.index_head_dim);
    projection(at + "attn.indexer.weights_proj.weight", a.indexer.head_weights, d, c_.index_heads);
    compressor(at + "attn.indexer.compressor.", a.indexer.compressor, kind.compress_rate, halves, c_.index_head_dim);
  }

  void compressor(const std::string& at, CompressorWeights& c, std::int64_t rate, std::int64_t halves,
                  std::int64_t width) {
    projection(at + "wkv.weight", c.kv, c_.hidden_size, halves * width);
    projection(at + "wgate.weight", c.gate, c_.hidden_size, halves * width);
    plain(at + "ape", c.position_bias, {rate, halves * width});
    plain(at + "norm.weight", c.norm, {width});
  }

  void moe(const std::string& at, const LayerConfig& kind, MoeWeights& m) {
    plain(at + "ffn_norm.weight", m.norm, {c_.hidden_size});
    projection(at + "ffn.gate.weight", m.router, c_.hidden_size, c_.experts);
    if (kind.moe == MoeKind::hash) {
      const std::array<std::int64_t, 2> extents{c_.vocab_size, c_.experts_per_token};
      slots_.push_back({at + "ffn.gate.tid2eid",
                        Layout::ids,
                        {extents.begin(), extents.end()},
                        1,
                        nullptr,
                        place<std::int64_t, 2>(m.token_experts, extents)});
    } else {
      plain(at + "ffn.gate.bias", m.router_bias, {c_.experts});
    }
    mlp(at + "ffn.shared_experts.", m.shared, c_.shared_experts * c_.moe_intermediate);
    m.experts.resize(static_cast<std::size_t>(c_.experts));
    for (std::size_t e = 0; e < m.experts.size(); ++e)
      mlp(fmt::format("{}ffn.experts.{}.", at, e), m.experts[e], c_.moe_intermediate);
  }

  void mlp(const std::string& at, MlpWeights& m, std::int64_t inner) {
    projection(at + "w1.weight", m.gate, c_.hidden_size, inner);
    projection(at + "w3.weight", m.up, c_.hidden_size, inner);
    projection(at + "w2.weight", m.down, inner, c_.hidden_size);
  }

  const ModelConfig& c_;
  ModelWeights& w_;
  const bool allocate_;
  std::vector<Slot> slots_;
};

constexpr std::int64_t kTile = 16;  // 16 f32 are a cache line

/// to[c, r] = from[r, c], in tiles so that both sides stay in cache.
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (std::int64_t c = c0; c < std::min(c0 + kTile, columns); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) to[c * rows + r] = from[r * columns + c];
}

}  // namespace

std::string_view naming_name(Naming naming) { return naming == Naming::release ? "the release's" : "transformers'"; }

std::int64_t Slot::count() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::vector<Slot> list_slots(const ModelConfig& config, ModelWeights& weights) {
  return Lister(config, weights, true).list();
}

std::vector<Slot> plan_slots(const ModelConfig& config) {
  ModelWeights nowhere;
  return Lister(config, nowhere, false).list();
}

Source source_of(const Slot& slot, Naming naming, const ModelConfig& config) {
  if (naming == Naming::release) return {{slot.name}, slot.shape, 0};
  return transformers_source(slot, config);
}

void to_memory(const Slot& slot, const float* file) {
  CHECK(slot.values != nullptr);
  if (slot.layout == Layout::plain) {
    std::copy_n(file, slot.count(), slot.values);
    return;
  }
  const std::int64_t rows = slot.shape[0] / slot.groups, columns = slot.shape[1];
  for (std::int64_t g = 0; g < slot.groups; ++g)
    transpose(file + g * rows * columns, rows, columns, slot.values + g * rows * columns);
}

void to_file(const Slot& slot, float* file) {
  CHECK(slot.values != nullptr);
  if (slot.layout == Layout::plain) {
    std::copy_n(slot.values, slot.count(), file);
    return;
  }
  const std::int64_t rows = slot.shape[0] / slot.groups, columns = slot.shape[1];
  for (std::int64_t g = 0; g < slot.groups; ++g)
    transpose(slot.values + g * rows * columns, columns, rows, file + g * rows * columns);
}

}  // namespace plumb
