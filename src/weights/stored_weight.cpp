#include "weights/stored_weight.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "tensor/formats.h"
#include "weights/block_formats.h"

namespace plumb {
namespace {

using Entry = TensorStore::Entry;
using Format = StoredWeight::Format;

constexpr std::string_view kWeightSuffix = ".weight";

MatrixShape matrix_of(const Slot& slot) { return {slot.shape[0], slot.shape[1]}; }

std::span<const std::uint8_t> bytes_of(const StoredTensor& tensor) {
  return {reinterpret_cast<const std::uint8_t*>(tensor.bytes.data()), tensor.bytes.size()};
}

/// The one tensor of these names; null when there is none.
Result<Entry*> find_one(TensorStore& store, const std::vector<std::string>& names) {
  Entry* found = nullptr;
  for (const std::string& name : names) {
    Entry* entry = store.find(name);
    if (entry == nullptr) continue;
    if (found != nullptr)
      return error("{}: tensors '{}' and '{}' are the same weight", store.file_name(), found->tensor->name, name);
    found = entry;
  }
  return found;
}

template <class... Args>
tl::unexpected<Error> complaint(const Entry& entry, fmt::format_string<Args...> format, Args&&... args) {
  return error("{}: tensor '{}': {}", *entry.file_name, entry.tensor->name,
               fmt::format(format, std::forward<Args>(args)...));
}

Result<void> check_shape(const Entry& entry, const std::vector<std::int64_t>& shape, const std::string& why = {}) {
  if (entry.tensor->shape == shape) return {};
  return complaint(entry, "expected shape {}{}, found {}", shape_text(shape), why, shape_text(entry.tensor->shape));
}

bool is_packed(DType dtype) { return dtype == DType::i8 || dtype == DType::u8; }

/// Why a tensor of this dtype cannot be the weight; none when it can.
std::optional<std::string> dtype_complaint(const Slot& slot, const Source& source, const StoredTensor& tensor) {
  const DType dtype = tensor.dtype;
  if (slot.layout == Slot::Layout::ids) {
    if (dtype == DType::i64 || dtype == DType::i32) return std::nullopt;
    return fmt::format("expected dtype I64 or I32, found {}", dtype_name(dtype));
  }
  if (dtype == DType::f32 || dtype == DType::bf16) return std::nullopt;
  if (dtype != DType::f8_e4m3 && !is_packed(dtype))
    return fmt::format("expected dtype F32 or BF16 (or F8_E4M3, I8 or U8 with scales), found {}", dtype_name(dtype));
  if (source.shape != slot.shape)
    return fmt::format(
        "expected dtype F32 or BF16, found {}: stacked experts are read unquantised only; quantised ones have the "
        "release's names, one tensor an expert",
        dtype_name(dtype));
  if (slot.layout == Slot::Layout::plain || !tensor.name.ends_with(kWeightSuffix))
    return fmt::format(
        "expected dtype F32 or BF16, found {}: only matrices '.weight' besides the embedding may be "
        "quantised",
        dtype_name(dtype));
  return std::nullopt;
}

/// Reads a slot's companions: the tensors that are named after the weight.
class Locator {
 public:
  Locator(const Slot& slot, const ModelConfig& config, TensorStore& store, Entry& weight)
      : slot_(slot), config_(config), store_(store), weight_(weight), matrix_(matrix_of(slot)) {
    base_ = weight.tensor->name.substr(0, weight.tensor->name.size() - kWeightSuffix.size());
  }

  Result<StoredWeight> fp8() {
    const BlockShape block = config_.fp8_block;
    if (const auto good = check_shape(weight_, slot_.shape); !good) return tl::unexpected(good.error());
    const auto scales = needed({base_ + ".scale", base_ + ".weight_scale_inv"},
                               fmt::format("FP8 has one scale a block of {} x {}", block.rows, block.columns));
    if (!scales) return tl::unexpected(scales.error());
    const Entry& entry = **scales;
    if (entry.tensor->dtype != DType::f8_e8m0 && entry.tensor->dtype != DType::f32)
      return complaint(entry, "expected dtype F8_E8M0 or F32, found {}", dtype_name(entry.tensor->dtype));
    const MatrixShape grid = scale_shape(matrix_, block);
    const auto good = check_shape(
        entry, {grid.rows, grid.columns},
        fmt::format(" (one scale a block of {} x {} of {})", block.rows, block.columns, shape_text(slot_.shape)));
    if (!good) return tl::unexpected(good.error());
    return StoredWeight{.format = Format::fp8, .tensor = &weight_, .scales = &entry};
  }

  Result<StoredWeight> fp4() {
    if (matrix_.columns % 2 != 0)
      return complaint(weight_, "found {}, but FP4 needs an even number of columns, and config.json asks for {}",
                       dtype_name(weight_.tensor->dtype), shape_text(slot_.shape));
    const auto good = check_shape(weight_, {matrix_.rows, matrix_.columns / 2},
                                  fmt::format(" (two FP4 codes a byte of {})", shape_text(slot_.shape)));
    if (!good) return tl::unexpected(good.error());
    const bool is_nvfp4 = has(".weight_scale") || has(".weight_scale_2"), is_mxfp4 = has(".scale");
    if (is_nvfp4 && is_mxfp4)
      return complaint(weight_, "has both MXFP4's '{}.scale' and NVFP4's '{}.weight_scale'; remove those not meant",
                       base_, base_);
    if (!is_nvfp4 && !is_mxfp4)
      return complaint(weight_,
                       "its scales are missing: neither '{}.scale' (MXFP4) nor '{}.weight_scale' (NVFP4) is "
                       "there",
                       base_, base_);
    return is_nvfp4 ? nvfp4() : mxfp4();
  }

 private:
  bool has(const char* suffix) const { return store_.find(base_ + suffix) != nullptr; }

  Result<const Entry*> needed(const std::vector<std::string>& names, const std::string& why) {
    const auto found = find_one(store_, names);
    if (!found) return tl::unexpected(found.error());
    if (*found == nullptr)
      return complaint(weight_, "its scales are missing: there is no tensor '{}'; {}", names.front(), why);
    (*found)->used = true;
    return *found;
  }

  Result<const Entry*> fp4_scales(const char* suffix, DType dtype, std::int64_t block) {
    const std::string why = fmt::format("one scale for {} columns of a row", block);
    auto scales = needed({base_ + suffix}, why);
    if (!scales) return scales;
    if ((*scales)->tensor->dtype != dtype)
      return complaint(**scales, "expected dtype {}, found {}", dtype_name(dtype),
                       dtype_name((*scales)->tensor->dtype));
    const MatrixShape grid = scale_shape(matrix_, {1, block});
    const auto good =
        check_shape(**scales, {grid.rows, grid.columns}, fmt::format(" ({} of {})", why, shape_text(slot_.shape)));
    if (!good) return tl::unexpected(good.error());
    return scales;
  }

  Result<StoredWeight> mxfp4() {
    const auto scales = fp4_scales(".scale", DType::f8_e8m0, kMxfp4Columns);
    if (!scales) return tl::unexpected(scales.error());
    return StoredWeight{.format = Format::mxfp4, .tensor = &weight_, .scales = *scales};
  }

  Result<StoredWeight> nvfp4() {
    const auto scales = fp4_scales(".weight_scale", DType::f8_e4m3, kNvfp4Columns);
    if (!scales) return tl::unexpected(scales.error());
    const auto global = scalar(".weight_scale_2");
    if (!global) return tl::unexpected(global.error());
    if (has(".input_scale"))
      if (const auto input = scalar(".input_scale"); !input) return tl::unexpected(input.error());
    return StoredWeight{.format = Format::nvfp4, .tensor = &weight_, .scales = *scales, .global = *global};
  }

  /// An F32 tensor of one element.
  Result<float> scalar(const char* suffix) {
    const auto found = needed({base_ + suffix}, "NVFP4 has one such scale a matrix");
    if (!found) return tl::unexpected(found.error());
    const Entry& entry = **found;
    if (entry.tensor->dtype != DType::f32 || entry.tensor->count() != 1)
      return complaint(entry, "expected one F32 value, found {} {}", dtype_name(entry.tensor->dtype),
                       shape_text(entry.tensor->shape));
    float value;
    std::memcpy(&value, entry.tensor->bytes.data(), sizeof value);
    if (!std::isfinite(value) || value <= 0.0f) return complaint(entry, "{} is no positive finite scale", value);
    return value;
  }

  const Slot& slot_;
  const ModelConfig& config_;
  TensorStore& store_;
  Entry& weight_;
  const MatrixShape matrix_;
  std::string base_;
};

/// The f32 at `index` of a tensor that may be unaligned.
float f32_at(const StoredTensor& tensor, std::int64_t index) {
  float value;
  std::memcpy(&value, tensor.bytes.data() + index * std::int64_t{sizeof value}, sizeof value);
  return value;
}

/// All scales of a weight, widened exactly.
Result<std::vector<float>> read_scales(const Entry& entry) {
  const StoredTensor& tensor = *entry.tensor;
  std::vector<float> scales(static_cast<std::size_t>(tensor.count()));
  for (std::size_t i = 0; i < scales.size(); ++i) {
    scales[i] = tensor.dtype == DType::f32       ? f32_at(tensor, static_cast<std::int64_t>(i))
                : tensor.dtype == DType::f8_e8m0 ? e8m0_to_f32(bytes_of(tensor)[i])
                                                 : e4m3_to_f32(bytes_of(tensor)[i]);
    if (!std::isfinite(scales[i]) || std::signbit(scales[i]))
      return complaint(entry, "scale {} is {}: scales must be finite and not negative", i, scales[i]);
  }
  return scales;
}

/// out.size() elements from `first` on, widened to f32.
void widen(const StoredTensor& tensor, std::int64_t first, std::span<float> out) {
  const std::byte* from = tensor.bytes.data() + first * dtype_bytes(tensor.dtype);
  if (tensor.dtype == DType::f32) {
    std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  CHECK(tensor.dtype == DType::bf16);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);  // the file may be unaligned
    out[i] = bf16_to_f32(bits);
  }
}

Result<void> decode(const Slot& slot, const StoredWeight& stored, BlockShape fp8_block, std::span<float> out) {
  const auto scales = read_scales(*stored.scales);
  if (!scales) return tl::unexpected(scales.error());
  const auto codes = bytes_of(*stored.tensor->tensor);
  const MatrixShape matrix = matrix_of(slot);
  if (stored.format == Format::fp8)
    decode_fp8(codes, *scales, matrix, fp8_block, out);
  else
    decode_fp4(codes, *scales, matrix, stored.format == Format::mxfp4 ? kMxfp4Columns : kNvfp4Columns, stored.global,
               out);
  return {};
}

bool is_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) != 0x7f800000u; }

}  // namespace

Result<StoredWeight> locate_weight(const Slot& slot, Naming naming, const ModelConfig& config, TensorStore& store) {
  const Source source = source_of(slot, naming, config);
  const auto found = find_one(store, source.names);
  if (!found) return tl::unexpected(found.error());
  if (*found == nullptr)
    return error("{}: tensor '{}' of shape {} is missing; config.json asks for it", store.file_name(),
                 source.names.front(), shape_text(source.shape));
  Entry& entry = **found;
  const DType dtype = entry.tensor->dtype;
  // The shape of a plain weight comes first: of another model, it says more than the dtype.
  if (!is_packed(dtype))
    if (const auto good = check_shape(entry, source.shape); !good) return tl::unexpected(good.error());
  if (const auto bad = dtype_complaint(slot, source, *entry.tensor)) return complaint(entry, "{}", *bad);
  entry.used = true;
  if (dtype == DType::f8_e4m3) return Locator(slot, config, store, entry).fp8();
  if (is_packed(dtype)) return Locator(slot, config, store, entry).fp4();
  return StoredWeight{.tensor = &entry, .first = source.first};
}

Result<void> read_weight(const Slot& slot, const StoredWeight& stored, const ModelConfig& config,
                         std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(slot.count()));
  if (stored.format == Format::plain)
    widen(*stored.tensor->tensor, stored.first, values);
  else if (const auto done = decode(slot, stored, config.fp8_block, values); !done)
    return done;
  bool finite = true;
  for (const float value : values) finite &= is_finite(value);
  if (finite) return {};
  const auto at = std::find_if_not(values.begin(), values.end(), is_finite) - values.begin();
  return complaint(*stored.tensor, "element {} is {}: not finite", stored.first + at,
                   values[static_cast<std::size_t>(at)]);
}

}  // namespace plumb
