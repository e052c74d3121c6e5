#include "model/config.h"

#include <cmath>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "model/config_keys.h"
#include "model/quantisation_config.h"
#include "tensor/strict_json.h"

namespace plumb {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxLayers = 128;
constexpr std::int64_t kMaxWidth = 1 << 20;  // of any one extent but the vocabulary and the context
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxPositions = 1 << 30;
constexpr std::int64_t kMaxMtpLayers = 16;
constexpr std::int64_t kMaxRow = 1 << 30;  // of an extent that is a product; times a context it fits 63 bits
constexpr std::size_t kMaxConfigBytes = 16 << 20;
constexpr int kPageTokens = 128;     // a page is a whole number of compressed rows of every layer
constexpr int kOverlappingRate = 4;  // the release's: overlapping halves and an indexer

struct IntegerField {
  const char* key;
  const char* alias;  // another name of the same thing; null: none
  std::int64_t ModelConfig::* field;
  std::int64_t most;
};

constexpr IntegerField kIntegers[] = {
    {"vocab_size", nullptr, &ModelConfig::vocab_size, kMaxVocab},
    {"hidden_size", nullptr, &ModelConfig::hidden_size, kMaxWidth},
    {"num_attention_heads", nullptr, &ModelConfig::heads, kMaxWidth},
    {"head_dim", nullptr, &ModelConfig::head_dim, kMaxWidth},
    {"q_lora_rank", nullptr, &ModelConfig::q_lora_rank, kMaxWidth},
    {"o_groups", nullptr, &ModelConfig::o_groups, kMaxWidth},
    {"o_lora_rank", nullptr, &ModelConfig::o_lora_rank, kMaxWidth},
    {"sliding_window", nullptr, &ModelConfig::window, kMaxWidth},
    {"index_n_heads", nullptr, &ModelConfig::index_heads, kMaxWidth},
    {"index_head_dim", nullptr, &ModelConfig::index_head_dim, kMaxWidth},
    {"index_topk", nullptr, &ModelConfig::index_topk, kMaxWidth},
    {"hc_mult", nullptr, &ModelConfig::hc_mult, 64},
    {"hc_sinkhorn_iters", nullptr, &ModelConfig::hc_sinkhorn_iters, 1000},
    {"n_routed_experts", "num_local_experts", &ModelConfig::experts, 4096},
    {"num_experts_per_tok", nullptr, &ModelConfig::experts_per_token, 4096},
    {"n_shared_experts", nullptr, &ModelConfig::shared_experts, 64},
    {"moe_intermediate_size", "intermediate_size", &ModelConfig::moe_intermediate, kMaxWidth},
    {"max_position_embeddings", nullptr, &ModelConfig::max_positions, kMaxPositions},
};

/// What a real number may be: far beyond any model, yet small enough that float32 arithmetic with it stays finite.
struct Range {
  double least;
  double most;
  bool with_least;  // whether `least` itself is allowed

  bool holds(double x) const { return (with_least ? x >= least : x > least) && x <= most; }  // false for a NaN
};

constexpr Range kEpsilon{0, 1e-2, false};
constexpr Range kTheta{1, 1e12, true};
constexpr Range kFactor{1, 1e4, true};
constexpr Range kOriginalPositions{1, kMaxPositions, true};
constexpr Range kBeta{0, 1e6, false};
constexpr Range kFraction{0, 1, false};

struct NumberField {
  const char* key;
  double ModelConfig::* field;
  Range range;
};

constexpr NumberField kNumbers[] = {
    {"hc_eps", &ModelConfig::hc_eps, kEpsilon},
    {"routed_scaling_factor", &ModelConfig::routed_scaling_factor, {0, 1000, false}},
    {"swiglu_limit", &ModelConfig::swiglu_limit, {0, 1e6, false}},
    {"rms_norm_eps", &ModelConfig::rms_norm_eps, kEpsilon},
};

/// A value with the place that states it, so that a contradiction can name both.
template <class T>
struct Stated {
  std::string key;
  T value;
};

struct Attention {
  AttentionKind kind;
  int rate;
  bool operator==(const Attention&) const = default;
};

/// Reads one document into a ModelConfig. The first complaint is kept, and what is read after it does not count.
class Reader {
 public:
  Reader(const json& root, const std::string& file_name) : root_(root), file_(file_name) {}

  Result<ModelConfig> read() {
    check_keys();
    read_scalars();
    read_profile();
    read_quantisation();
    read_rope();
    read_layers();
    check_ranges();
    check_products();
    if (failure_) return tl::unexpected(*failure_);
    return std::move(config_);
  }

 private:
  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (!failure_) failure_ = Error{file_ + ": " + fmt::format(format, std::forward<Args>(args)...)};
  }

  /// The value at a dotted path; null when a step is absent or null.
  const json* find(const std::string& path) const {
    const json* at = &root_;
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      const auto step = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
      if (!at->is_object() || step == at->end() || step->is_null()) return nullptr;
      at = &*step;
      begin = end + 1;
    }
    return at;
  }

  std::optional<std::int64_t> integer(const std::string& path, std::int64_t least, std::int64_t most) {
    const json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) return fail("{} {} is not an integer", path, shown(*value)), std::nullopt;
    const bool fits = !value->is_number_unsigned() || value->get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
    const std::int64_t number = fits ? value->get<std::int64_t>() : INT64_MAX;
    if (!fits || number < least || number > most)
      return fail("{} {} is outside [{}, {}]", path, shown(*value), least, most), std::nullopt;
    return number;
  }

  std::optional<double> number_in(const Range& range, const std::string& path) {
    const json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) return fail("{} {} is not a number", path, shown(*value)), std::nullopt;
    const double number = value->get<double>();
    if (!range.holds(number))
      return fail("{} {} is outside {}{}, {}]", path, shown(*value), range.with_least ? "[" : "(", range.least,
                  range.most),
             std::nullopt;
    return number;
  }

  std::optional<std::string> text(const std::string& path) {
    const json* value = find(path);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) return fail("{} {} is not a string", path, shown(*value)), std::nullopt;
    return value->get<std::string>();
  }

  const json* array(const std::string& path) {
    const json* value = find(path);
    if (value != nullptr && !value->is_array()) return fail("{} is not an array", path), nullptr;
    return value;
  }

  /// The one value that all places state; a complaint when none does (`what` is missing) or two differ.
  template <class T>
  T agreed(const std::vector<Stated<T>>& stated, std::string_view what) {
    if (stated.empty()) return fail("{} is missing", what), T{};
    for (const Stated<T>& other : stated)
      if (other.value != stated.front().value)
        fail("{} {} contradicts {} {}", stated.front().key, stated.front().value, other.key, other.value);
    return stated.front().value;
  }

  template <class T>
  static void state(std::vector<Stated<T>>& stated, std::string key, std::optional<T> value) {
    if (value) stated.push_back({std::move(key), *value});
  }

  void check_keys() {
    if (const auto type = text("model_type"); type == "deepseek_v41")
      fail("model_type \"deepseek_v41\" is another architecture than deepseek_v4 and is not supported");
    if (find("model_type") == nullptr) fail("model_type is missing");
    for (const auto& [key, value] : root_.items()) check_key(key, value);
  }

  void check_key(const std::string& key, const json& value) {
    for (const ConfigKey& known : kConfigKeys) {
      if (known.name != key) continue;
      if (known.use == KeyUse::fixed && !value.is_null() && value != json::parse(known.detail))
        fail("{} is {}, but only {} is supported", key, shown(value), known.detail);
      return;
    }
    fail("unknown key '{}' could change numerics; remove it if it does not", key);
  }

  void read_scalars() {
    for (const IntegerField& field : kIntegers) {
      std::vector<Stated<std::int64_t>> stated;
      state(stated, field.key, integer(field.key, 1, field.most));
      if (field.alias != nullptr) state(stated, field.alias, integer(field.alias, 1, field.most));
      config_.*field.field = agreed(stated, field.key);
    }
    for (const NumberField& field : kNumbers) {
      std::vector<Stated<double>> stated;
      state(stated, field.key, number_in(field.range, field.key));
      config_.*field.field = agreed(stated, field.key);
    }
    config_.name = text("name").value_or("");
    config_.bos_token_id = token_id("bos_token_id");
    config_.eos_token_id = token_id("eos_token_id");
  }

  std::int32_t token_id(const char* key) {
    const auto id = integer(key, 0, kMaxVocab);
    if (!id) fail("{} is missing", key);
    if (id && *id >= config_.vocab_size) fail("{} {} is not below vocab_size {}", key, *id, config_.vocab_size);
    return static_cast<std::int32_t>(id.value_or(0));
  }

  void read_profile() {
    const json* plumb = find("plumb");
    if (plumb == nullptr) return;
    if (!plumb->is_object()) return fail("plumb is not an object");
    for (const auto& [key, value] : plumb->items())
      if (key != "profile") fail("unknown key 'plumb.{}'", key);
    const auto profile = text("plumb.profile").value_or("math");
    if (profile == "official") fail("plumb.profile \"official\" is not built yet; use \"math\"");
    if (profile != "math" && profile != "official")
      fail("plumb.profile \"{}\" is neither \"math\" nor \"official\"", profile);
  }

  void read_quantisation() {
    const json* quantisation = find("quantization_config");
    if (quantisation == nullptr) return;
    if (const auto block = read_quantisation_config(*quantisation, "quantization_config"))
      config_.fp8_block = *block;
    else
      fail("{}", block.error().message);
  }

  /// YaRN of the rope dictionary at `path`; its rotary width and theta join what other keys state.
  RopeProfile rope_at(const std::string& path) {
    RopeProfile rope;
    const json& dictionary = *find(path);
    for (const auto& [key, value] : dictionary.items()) check_rope_key(path, key, value);
    std::vector<Stated<std::string>> types;
    for (const char* key : {".rope_type", ".type"}) state(types, path + key, text(path + key));
    const std::string type = agreed(types, path + ".rope_type");
    state_rotary_factor(path + ".partial_rotary_factor");
    if (type == "default") {
      for (const char* key : {".factor", ".original_max_position_embeddings", ".beta_fast", ".beta_slow"})
        if (find(path + key) != nullptr) fail("{}{} contradicts {}.rope_type \"default\"", path, key, path);
      return rope;
    }
    if (type != "yarn") fail("{}.rope_type \"{}\" is neither \"default\" nor \"yarn\"", path, type);
    rope.factor = needed(kFactor, path + ".factor");
    rope.original_max_positions = needed(kOriginalPositions, path + ".original_max_position_embeddings");
    rope.beta_fast = needed(kBeta, path + ".beta_fast");
    rope.beta_slow = needed(kBeta, path + ".beta_slow");
    if (rope.beta_fast <= rope.beta_slow)
      fail("{}.beta_fast {} is not above beta_slow {}", path, rope.beta_fast, rope.beta_slow);
    return rope;
  }

  void check_rope_key(const std::string& path, const std::string& key, const json& value) {
    for (const char* known : {"rope_type", "type", "factor", "original_max_position_embeddings", "beta_fast",
                              "beta_slow", "rope_theta", "partial_rotary_factor"})
      if (key == known) return;
    if (key != "attention_factor") fail("unknown key '{}.{}' could change numerics", path, key);
    if (!value.is_null() && value != 1.0) fail("{}.{} is {}, but only 1.0 is supported", path, key, shown(value));
  }

  double needed(const Range& range, const std::string& path) {
    const auto number = number_in(range, path);
    if (!number) fail("{} is missing", path);
    return number.value_or(1);
  }

  void state_rotary_factor(const std::string& path) {
    const auto factor = number_in(kFraction, path);
    if (!factor) return;
    const double exact = *factor * static_cast<double>(config_.head_dim);
    const double dims = std::round(exact);
    if (std::abs(exact - dims) > 1e-6 || dims < 1 || dims > static_cast<double>(kMaxWidth))
      return fail("{} {} of head_dim {} is not a whole number of dimensions", path, *factor, config_.head_dim);
    rotary_.push_back({fmt::format("{} {} of head_dim {}, rotary width", path, *factor, config_.head_dim),
                       static_cast<std::int64_t>(dims)});
  }

  /// Where the compressed layers' YaRN may be stated; at most one entry a dialect.
  std::vector<Stated<RopeProfile>> compressed_ropes() {
    std::vector<Stated<RopeProfile>> ropes;
    const json* parameters = find("rope_parameters");
    const bool nested = parameters != nullptr && (parameters->contains("main") || parameters->contains("compress"));
    for (const char* key : {"rope_parameters", "rope_scaling"})
      if (find(key) != nullptr && !find(key)->is_object()) return fail("{} is not an object", key), ropes;
    if (nested) {
      for (const auto& [key, value] : parameters->items())
        if (key != "main" && key != "compress") fail("unknown key 'rope_parameters.{}' beside main and compress", key);
      for (const char* key : {"rope_parameters.main", "rope_parameters.compress"})
        if (find(key) == nullptr || !find(key)->is_object()) return fail("{} is not an object", key), ropes;
      if (rope_at("rope_parameters.main").factor != 1) fail("rope_parameters.main has YaRN; only compress may");
      ropes.push_back({"rope_parameters.compress", rope_at("rope_parameters.compress")});
    } else if (parameters != nullptr) {
      ropes.push_back({"rope_parameters", rope_at("rope_parameters")});
    }
    if (find("rope_scaling") != nullptr) ropes.push_back({"rope_scaling", rope_at("rope_scaling")});
    // An explicit null is a statement too: no YaRN.
    if (ropes.empty() && !root_.contains("rope_scaling")) fail("rope_parameters (or rope_scaling) is missing");
    return ropes;
  }

  void read_rope() {
    state(rotary_, "qk_rope_head_dim", integer("qk_rope_head_dim", 1, kMaxWidth));
    state_rotary_factor("partial_rotary_factor");
    const auto ropes = compressed_ropes();
    for (const auto& [key, rope] : ropes) {
      const RopeProfile& first = ropes.front().value;
      if (std::tie(rope.factor, rope.original_max_positions, rope.beta_fast, rope.beta_slow) !=
          std::tie(first.factor, first.original_max_positions, first.beta_fast, first.beta_slow))
        fail("{} contradicts {}", key, ropes.front().key);
    }
    if (!ropes.empty()) config_.compressed_rope = ropes.front().value;
    config_.window_rope.theta = theta({"rope_theta", "rope_parameters.main.rope_theta"});
    config_.compressed_rope.theta = theta({"compress_rope_theta", "rope_parameters.compress.rope_theta",
                                           "rope_parameters.rope_theta", "rope_scaling.rope_theta"});
    config_.rope_dim = agreed(rotary_, "qk_rope_head_dim (or partial_rotary_factor)");
  }

  double theta(std::initializer_list<const char*> paths) {
    std::vector<Stated<double>> stated;
    for (const char* path : paths) state(stated, path, number_in(kTheta, path));
    return agreed(stated, *paths.begin());
  }

  /// compress_ratios: one entry a layer, plus one for each MTP layer.
  std::optional<std::vector<Attention>> attention_by_ratios(std::int64_t layers, std::int64_t mtp_layers) {
    const json* ratios = array("compress_ratios");
    if (ratios == nullptr) return std::nullopt;
    const auto count = static_cast<std::int64_t>(ratios->size());
    if (count != layers && count != layers + mtp_layers)
      return fail("compress_ratios has {} entries, but num_hidden_layers is {} and num_nextn_predict_layers {}", count,
                  layers, mtp_layers),
             std::nullopt;
    std::vector<Attention> kinds;
    for (const json& ratio : *ratios) {
      if (!ratio.is_number_unsigned() || ratio > kPageTokens)
        return fail("compress_ratios: {} is not an integer in [0, {}]", shown(ratio), kPageTokens), std::nullopt;
      const int rate = ratio.get<int>();
      kinds.push_back({rate == 0                  ? AttentionKind::sliding
                       : rate == kOverlappingRate ? AttentionKind::compressed_sparse
                                                  : AttentionKind::heavily_compressed,
                       rate});
    }
    kinds.resize(static_cast<std::size_t>(layers));  // the surplus belongs to MTP layers
    return kinds;
  }

  std::optional<AttentionKind> kind_named(const json& name) {
    if (name == "sliding_attention") return AttentionKind::sliding;
    if (name == "compressed_sparse_attention") return AttentionKind::compressed_sparse;
    if (name == "heavily_compressed_attention") return AttentionKind::heavily_compressed;
    return std::nullopt;
  }

  /// layer_types with compress_rates.
  std::optional<std::vector<Attention>> attention_by_types(std::int64_t layers) {
    const json* types = array("layer_types");
    if (types == nullptr) return std::nullopt;
    if (static_cast<std::int64_t>(types->size()) != layers)
      return fail("layer_types has {} entries, but num_hidden_layers is {}", types->size(), layers), std::nullopt;
    std::vector<Attention> kinds;
    for (const json& type : *types) {
      const auto kind = kind_named(type);
      if (!kind) return fail("layer_types: unknown layer type {}", shown(type)), std::nullopt;
      std::optional<std::int64_t> rate = 0;
      if (*kind != AttentionKind::sliding) {
        const std::string path = "compress_rates." + type.get<std::string>();
        rate = integer(path, 1, kPageTokens);
        if (!rate) return fail("{} is missing", path), std::nullopt;
      }
      kinds.push_back({*kind, static_cast<int>(*rate)});
    }
    return kinds;
  }

  void check_compress_rates(const std::vector<Attention>& attention) {
    const json* rates = find("compress_rates");
    if (rates == nullptr) return;
    if (!rates->is_object()) return fail("compress_rates is not an object");
    for (const auto& [name, value] : rates->items()) {
      const auto kind = kind_named(name);
      if (!kind || *kind == AttentionKind::sliding) return fail("compress_rates: unknown layer type \"{}\"", name);
      const auto rate = integer("compress_rates." + name, 1, kPageTokens);
      for (const Attention& layer : attention)
        if (layer.kind == *kind && rate && layer.rate != *rate)
          return fail("compress_rates.{} {} contradicts compress_ratios, which holds {}", name, *rate, layer.rate);
    }
  }

  std::optional<std::vector<MoeKind>> moe_by_types(std::int64_t layers) {
    const json* types = array("mlp_layer_types");
    if (types == nullptr) return std::nullopt;
    if (static_cast<std::int64_t>(types->size()) != layers)
      return fail("mlp_layer_types has {} entries, but num_hidden_layers is {}", types->size(), layers), std::nullopt;
    std::vector<MoeKind> kinds;
    for (const json& type : *types) {
      if (type != "hash_moe" && type != "moe")
        return fail("mlp_layer_types: unknown type {}", shown(type)), std::nullopt;
      kinds.push_back(type == "hash_moe" ? MoeKind::hash : MoeKind::scored);
    }
    return kinds;
  }

  std::optional<std::vector<MoeKind>> moe_by_count(std::int64_t layers) {
    const auto hashed = integer("num_hash_layers", 0, layers);
    if (!hashed) return std::nullopt;
    std::vector<MoeKind> kinds(static_cast<std::size_t>(layers), MoeKind::scored);
    std::fill_n(kinds.begin(), *hashed, MoeKind::hash);
    return kinds;
  }

  void read_layers() {
    const auto layers = integer("num_hidden_layers", 1, kMaxLayers);
    if (!layers) return fail("num_hidden_layers is missing");
    const auto mtp_layers = integer("num_nextn_predict_layers", 0, kMaxMtpLayers).value_or(0);
    const auto by_ratios = attention_by_ratios(*layers, mtp_layers);
    const auto by_types = attention_by_types(*layers);
    if (!by_ratios && !by_types) return fail("compress_ratios (or layer_types) is missing");
    if (by_ratios && by_types && *by_ratios != *by_types) return fail("compress_ratios contradicts layer_types");
    const auto& attention = by_ratios ? *by_ratios : *by_types;
    check_compress_rates(attention);
    const auto by_count = moe_by_count(*layers);
    const auto by_names = moe_by_types(*layers);
    if (!by_count && !by_names) return fail("num_hash_layers (or mlp_layer_types) is missing");
    if (by_count && by_names && *by_count != *by_names) return fail("num_hash_layers contradicts mlp_layer_types");
    const auto& moe = by_count ? *by_count : *by_names;
    for (std::size_t i = 0; i < attention.size(); ++i)
      config_.layers.push_back({attention[i].kind, attention[i].rate, moe[i]});
  }

  void check_ranges() {
    const ModelConfig& c = config_;
    if (failure_) return;
    if (c.rope_dim % 2 != 0) fail("qk_rope_head_dim {} is odd", c.rope_dim);
    if (c.rope_dim > c.head_dim) fail("qk_rope_head_dim {} is above head_dim {}", c.rope_dim, c.head_dim);
    if (c.rope_dim > c.index_head_dim)
      fail("qk_rope_head_dim {} is above index_head_dim {}", c.rope_dim, c.index_head_dim);
    if (c.heads % c.o_groups != 0) fail("o_groups {} does not divide num_attention_heads {}", c.o_groups, c.heads);
    if (c.experts_per_token > c.experts)
      fail("num_experts_per_tok {} is above n_routed_experts {}", c.experts_per_token, c.experts);
    for (std::size_t i = 0; i < c.layers.size(); ++i)
      if (const int rate = c.layers[i].compress_rate; rate != 0 && kPageTokens % rate != 0)
        fail("layer {}: compress rate {} does not divide a page of {} tokens", i, rate, kPageTokens);
  }

  // Each extent is bounded already; what is a product of two is an extent too, of rows as long as the context.
  void check_products() {
    struct Product {
      const char* first;
      const char* second;
      std::int64_t value;
    };
    const ModelConfig& c = config_;
    for (const Product& p : {Product{"num_attention_heads", "head_dim", c.heads * c.head_dim},
                             Product{"index_n_heads", "index_head_dim", c.index_heads * c.index_head_dim},
                             Product{"o_groups", "o_lora_rank", c.o_groups * c.o_lora_rank},
                             Product{"n_routed_experts", "moe_intermediate_size", c.experts * c.moe_intermediate}})
      if (p.value > kMaxRow) fail("{} times {} is {}, above {}", p.first, p.second, p.value, kMaxRow);
  }

  const json& root_;
  const std::string& file_;
  std::optional<Error> failure_;
  ModelConfig config_;
  std::vector<Stated<std::int64_t>> rotary_;
};

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& file_name) {
  const auto document = parse_json_strictly(text, file_name);
  if (!document) return tl::unexpected(document.error());
  if (!document->is_object()) return error("{}: not a JSON object", file_name);
  try {
    return Reader(*document, file_name).read();
  } catch (const json::exception& e) {  // a string that is not UTF-8 cannot get here, and types are checked
    return error("{}: {}", file_name, json_complaint(e));
  }
}

Result<ModelConfig> load_model_config(const std::filesystem::path& folder) {
  if (const auto there = check_folder(folder); !there) return tl::unexpected(there.error());
  const auto path = folder / "config.json";
  const auto text = read_file(path, kMaxConfigBytes);
  if (!text) return tl::unexpected(text.error());
  auto config = parse_model_config(*text, path.string());
  if (config && config->name.empty()) {
    std::error_code code;
    const auto absolute = std::filesystem::weakly_canonical(folder, code);
    config->name = (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
  }
  return config;
}

}  // namespace plumb
