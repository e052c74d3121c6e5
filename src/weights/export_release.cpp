#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <new>

#include "base/check.h"
#include "base/durable_file.h"
#include "tensor/formats.h"
#include "tensor/safetensors.h"
#include "weights/block_formats.h"
#include "weights/export.h"

namespace plumb {
namespace {

using Layout = Slot::Layout;

enum class Storage { ids, f32, bf16, fp8, mxfp4, nvfp4 };
constexpr std::array kStorageNames{"ids (I64)", "F32", "BF16", "fp8", "mxfp4", "nvfp4"};

/// One tensor of the file.
struct Written {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

template <class Range>
std::vector<std::byte> bytes_of(const Range& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool is_routed_expert(std::string_view name) { return name.find(".ffn.experts.") != std::string_view::npos; }

/// The linear layers of the release that are FP8. ".attn.wkv" is the attention's own; the compressors' are bf16.
bool is_fp8_linear(std::string_view name) {
  return name.find(".ffn.shared_experts.") != std::string_view::npos ||
         ends_with_any(name, {".attn.wq_a.weight", ".attn.wq_b.weight", ".attn.wkv.weight", ".attn.wo_a.weight",
                              ".attn.wo_b.weight", ".attn.indexer.wq_b.weight"});
}

bool is_kept_f32(std::string_view name) {
  return name.find("hc_") != std::string_view::npos || ends_with_any(name, {".attn_sink", ".ape", ".gate.bias"});
}

Storage storage_of(const Slot& slot, ExportForm form) {
  if (slot.layout == Layout::ids) return Storage::ids;
  if (is_kept_f32(slot.name)) return Storage::f32;
  if (form == ExportForm::release) return Storage::bf16;
  if (is_routed_expert(slot.name)) return form == ExportForm::nvfp4 ? Storage::nvfp4 : Storage::mxfp4;
  return is_fp8_linear(slot.name) ? Storage::fp8 : Storage::bf16;
}

std::string without_weight(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  CHECK(name.ends_with(kSuffix));
  return name.substr(0, name.size() - kSuffix.size());
}

/// The values that scales of a block format stand for.
std::vector<float> widened(const std::vector<std::uint8_t>& scales, float (*value_of)(std::uint8_t)) {
  std::vector<float> values(scales.size());
  std::ranges::transform(scales, values.begin(), value_of);
  return values;
}

/// A bound of the largest input of an expert's matrix, for input_scale; export.h says which.
float input_bound(const Slot& slot, const ModelConfig& config, const Vector& ffn_norm) {
  if (slot.name.ends_with(".w2.weight")) {
    const double limit = config.swiglu_limit;
    return static_cast<float>(limit / (1 + std::exp(-limit)) * limit * std::max(1.0, config.routed_scaling_factor));
  }
  return finite_amax(ffn_norm.view().span()) * std::sqrt(static_cast<float>(config.hidden_size));
}

/// Collects the tensors of an export and what they lost.
class Exporter {
 public:
  Exporter(const Model& model, ExportForm form) : model_(model), form_(form) {}

  Result<void> run() {
    // Only read; no array of a loaded model is empty, so list_slots allocates nothing.
    const auto slots = list_slots(model_.config, const_cast<ModelWeights&>(model_.weights));
    if (form_ == ExportForm::nvfp4) measure_experts(slots);
    for (const Slot& slot : slots)
      if (const auto done = add(slot); !done) return done;
    return {};
  }

  /// Modules that are NVFP4, without ".weight".
  const std::vector<std::string>& nvfp4_layers() const { return nvfp4_layers_; }

  Result<ExportSummary> write(const std::filesystem::path& path) {
    SafetensorsWriter writer;
    writer.set_metadata("format", "pt");
    ExportSummary summary;
    // Wide dtypes first: every tensor is aligned then, which some readers want.
    for (const std::int64_t width : {8, 4, 2, 1})
      for (const Written& tensor : tensors_) {
        if (dtype_bytes(tensor.dtype) != width) continue;
        writer.add_bytes(tensor.name, tensor.dtype, tensor.shape, tensor.bytes);
        summary.bytes += std::ssize(tensor.bytes);
      }
    if (const auto written = writer.write(path); !written) return tl::unexpected(written.error());
    for (const auto& [storage, sums] : sums_) {
      ExportPart part = sums.part;
      part.format = kStorageNames.at(static_cast<std::size_t>(storage));
      part.error = sums.square > 0 ? std::sqrt(sums.square_error / sums.square) : 0;
      summary.parts.push_back(std::move(part));
    }
    return summary;
  }

 private:
  struct Sums {
    ExportPart part;
    double square = 0, square_error = 0;
  };

  /// Weights that share a second scale have one name here: w3 of an expert goes by w1.
  static std::string scale_group(const std::string& name) {
    constexpr std::string_view kGate = "w1.weight", kUp = "w3.weight";
    return name.ends_with(kUp) ? name.substr(0, name.size() - kUp.size()).append(kGate) : name;
  }

  void measure_experts(const std::vector<Slot>& slots) {
    for (const Slot& slot : slots) {
      if (storage_of(slot, form_) != Storage::nvfp4) continue;
      float& amax = amax_[scale_group(slot.name)];
      amax = std::max(amax, finite_amax({slot.values, static_cast<std::size_t>(slot.count())}));
    }
  }

  Result<void> add(const Slot& slot) {
    const Storage storage = storage_of(slot, form_);
    Sums& sums = sums_[storage];
    ++sums.part.tensors;
    sums.part.weights += slot.count();
    const std::int64_t before = bytes_;
    if (storage == Storage::ids) {
      put(slot.name, DType::i64, slot.shape, bytes_of(std::span(slot.ids, static_cast<std::size_t>(slot.count()))));
    } else if (const auto done = add_values(slot, storage, sums); !done) {
      return done;
    }
    sums.part.bytes += bytes_ - before;
    return {};
  }

  Result<void> add_values(const Slot& slot, Storage storage, Sums& sums) {
    values_.resize(static_cast<std::size_t>(slot.count()));
    to_file(slot, values_.data());
    stored_ = values_;
    if (storage == Storage::f32) {
      put(slot.name, DType::f32, slot.shape, bytes_of(values_));
    } else if (storage == Storage::bf16) {
      if (const auto done = add_bf16(slot); !done) return done;
    } else if (storage == Storage::fp8) {
      add_fp8(slot);
    } else if (const auto done = add_fp4(slot, storage); !done) {
      return done;
    }
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const double value = values_[i], off = stored_[i] - value;
      sums.square += value * value;
      sums.square_error += off * off;
    }
    return {};
  }

  Result<void> add_bf16(const Slot& slot) {
    std::vector<std::uint16_t> codes(values_.size());
    std::ranges::transform(values_, codes.begin(), f32_to_bf16);
    std::ranges::transform(codes, stored_.begin(), bf16_to_f32);
    const auto beyond = std::ranges::find_if(stored_, [](float value) { return !std::isfinite(value); });
    if (beyond != stored_.end())
      return error("weight '{}': element {} is {}, beyond bf16", slot.name, beyond - stored_.begin(),
                   values_[static_cast<std::size_t>(beyond - stored_.begin())]);
    put(slot.name, DType::bf16, slot.shape, bytes_of(codes));
    return {};
  }

  void add_fp8(const Slot& slot) {
    const MatrixShape matrix{slot.shape[0], slot.shape[1]};
    const BlockCodes to = encode_fp8(values_, matrix, {});
    const MatrixShape grid = scale_shape(matrix, {});
    decode_fp8(to.codes, widened(to.scales, e8m0_to_f32), matrix, {}, stored_);
    put(slot.name, DType::f8_e4m3, slot.shape, bytes_of(to.codes));
    put(without_weight(slot.name) + ".scale", DType::f8_e8m0, {grid.rows, grid.columns}, bytes_of(to.scales));
  }

  Result<void> add_fp4(const Slot& slot, Storage storage) {
    const MatrixShape matrix{slot.shape[0], slot.shape[1]};
    if (matrix.columns % 2 != 0)
      return error("weight '{}': FP4 packs two columns a byte, but it has {} of them; export it as release", slot.name,
                   matrix.columns);
    const bool is_mxfp4 = storage == Storage::mxfp4;
    const float global = is_mxfp4 ? 1.0f : nvfp4_global(amax_.at(scale_group(slot.name)));
    const BlockCodes to = is_mxfp4 ? encode_mxfp4(values_, matrix) : encode_nvfp4(values_, matrix, global);
    const std::int64_t block = is_mxfp4 ? kMxfp4Columns : kNvfp4Columns;
    decode_fp4(to.codes, widened(to.scales, is_mxfp4 ? e8m0_to_f32 : e4m3_to_f32), matrix, block, global, stored_);
    // The release says I8, the NVFP4 export of it U8.
    put(slot.name, is_mxfp4 ? DType::i8 : DType::u8, {matrix.rows, matrix.columns / 2}, bytes_of(to.codes));
    const MatrixShape grid = scale_shape(matrix, {1, block});
    const std::string base = without_weight(slot.name);
    put(base + (is_mxfp4 ? ".scale" : ".weight_scale"), is_mxfp4 ? DType::f8_e8m0 : DType::f8_e4m3,
        {grid.rows, grid.columns}, bytes_of(to.scales));
    if (!is_mxfp4) add_nvfp4_scalars(slot, base, global);
    return {};
  }

  void add_nvfp4_scalars(const Slot& slot, const std::string& base, float global) {
    const std::size_t layer = std::stoul(slot.name.substr(std::string_view("layers.").size()));
    const float bound = input_bound(slot, model_.config, model_.weights.layers[layer].moe.norm);
    put(base + ".weight_scale_2", DType::f32, {}, bytes_of(std::vector<float>{global}));
    put(base + ".input_scale", DType::f32, {}, bytes_of(std::vector<float>{nvfp4_global(bound)}));
    nvfp4_layers_.push_back(base);
  }

  void put(std::string name, DType dtype, std::vector<std::int64_t> shape, std::vector<std::byte> bytes) {
    bytes_ += std::ssize(bytes);
    tensors_.push_back({std::move(name), dtype, std::move(shape), std::move(bytes)});
  }

  const Model& model_;
  const ExportForm form_;
  std::vector<Written> tensors_;
  std::map<Storage, Sums> sums_;
  std::map<std::string, float> amax_;  // of NVFP4 weights, by scale_group
  std::vector<std::string> nvfp4_layers_;
  std::vector<float> values_, stored_;  // of the weight at hand: the model's, and what the file stands for
  std::int64_t bytes_ = 0;
};

Result<void> make_empty_folder(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (const auto there = check_folder(folder); !there) return there;
  const std::filesystem::directory_iterator first(folder, code);
  if (code) return error("{}: cannot be read: {}", folder.string(), code.message());
  if (first != std::filesystem::directory_iterator())
    return error("{}: holds files already; name a folder that is empty or not there yet", folder.string());
  return {};
}

/// What turns text into ids, and defaults that servers read.
Result<void> copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json", "generation_config.json"}) {
    std::error_code ignored;
    if (!std::filesystem::exists(from / name, ignored)) continue;
    const auto text = read_file(from / name);
    if (!text) return tl::unexpected(text.error());
    if (const auto written = write_file_durably(to / name, *text); !written) return written;
  }
  return {};
}

}  // namespace

Result<ExportSummary> export_checkpoint(const Model& model, ExportForm form, const std::filesystem::path& source,
                                        const std::filesystem::path& folder) {
  try {
    Exporter exporter(model, form);
    if (const auto done = exporter.run(); !done) return tl::unexpected(done.error());
    const auto config = release_config_text(model.config, form, exporter.nvfp4_layers());
    if (!config) return tl::unexpected(config.error());
    if (const auto made = make_empty_folder(folder); !made) return tl::unexpected(made.error());
    auto summary = exporter.write(folder / "model.safetensors");
    if (!summary) return summary;
    if (const auto copied = copy_tokenizer(source, folder); !copied) return tl::unexpected(copied.error());
    if (form == ExportForm::nvfp4) {
      const auto manifest = nvfp4_manifest_text(exporter.nvfp4_layers());
      if (const auto done = write_file_durably(folder / "hf_quant_config.json", manifest); !done)
        return tl::unexpected(done.error());
    }
    if (const auto done = write_file_durably(folder / "config.json", *config); !done)
      return tl::unexpected(done.error());
    return summary;
  } catch (const std::bad_alloc&) {
    return error("not enough memory for the exported weights");
  }
}

}  // namespace plumb
