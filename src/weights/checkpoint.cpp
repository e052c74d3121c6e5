#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "base/check.h"
#include "weights/model.h"
#include "weights/model_hash.h"
#include "weights/tensor_map.h"
#include "weights/tensor_store.h"

namespace plumb {
namespace {

constexpr std::string_view kMtpPrefix = "mtp.";

/// A slot with the tensor that fills it.
struct Filled {
  TensorStore::Entry* entry;
  std::int64_t first;
};

Result<Naming> detect_naming(TensorStore& store) {
  if (store.find("embed.weight") != nullptr) return Naming::release;
  if (store.find("model.embed_tokens.weight") != nullptr) return Naming::transformers;
  return error(
      "{}: neither 'embed.weight' (the release's names) nor 'model.embed_tokens.weight' (transformers') is there: not "
      "a "
      "DeepSeek-V4 checkpoint in a known naming",
      store.file_name());
}

bool dtype_fits(DType dtype, Slot::Layout layout) {
  if (layout == Slot::Layout::ids) return dtype == DType::i64 || dtype == DType::i32;
  return dtype == DType::f32 || dtype == DType::bf16;
}

Result<void> check_tensor(const TensorStore::Entry& entry, const Source& source, const Slot& slot) {
  const StoredTensor& tensor = *entry.tensor;
  if (tensor.shape != source.shape)
    return error("{}: tensor '{}': expected shape {}, found {}", *entry.file_name, tensor.name,
                 shape_text(source.shape), shape_text(tensor.shape));
  if (dtype_fits(tensor.dtype, slot.layout)) return {};
  if (slot.layout == Slot::Layout::ids)
    return error("{}: tensor '{}': expected dtype I64 or I32, found {}", *entry.file_name, tensor.name,
                 dtype_name(tensor.dtype));
  return error("{}: tensor '{}': expected dtype F32 or BF16, found {} (quantised weights are not supported yet)",
               *entry.file_name, tensor.name, dtype_name(tensor.dtype));
}

/// Finds the one tensor of a slot, and holds shape and dtype against what the config asks for.
Result<Filled> locate(const Slot& slot, Naming naming, const ModelConfig& config, TensorStore& store) {
  const Source source = source_of(slot, naming, config);
  TensorStore::Entry* found = nullptr;
  for (const std::string& name : source.names) {
    TensorStore::Entry* entry = store.find(name);
    if (entry == nullptr) continue;
    if (found != nullptr)
      return error("{}: tensors '{}' and '{}' are the same weight", store.file_name(), found->tensor->name, name);
    found = entry;
  }
  if (found == nullptr)
    return error("{}: tensor '{}' of shape {} is missing; config.json asks for it", store.file_name(),
                 source.names.front(), shape_text(source.shape));
  if (const auto good = check_tensor(*found, source, slot); !good) return tl::unexpected(good.error());
  found->used = true;
  return Filled{found, source.first};
}

/// Tensors that no weight took: those of MTP are counted, any other is refused.
Result<std::int64_t> count_mtp(const TensorStore& store, Naming naming) {
  std::int64_t skipped = 0;
  const TensorStore::Entry* unknown = nullptr;
  for (const auto& [name, entry] : store.entries()) {
    if (entry.used) continue;
    if (name.starts_with(kMtpPrefix))
      ++skipped;
    else if (unknown == nullptr || name < unknown->tensor->name)  // the same one in every run
      unknown = &entry;
  }
  if (unknown != nullptr)
    return error("{}: tensor '{}' of shape {} is not part of the model that config.json describes, in {} names",
                 *unknown->file_name, unknown->tensor->name, shape_text(unknown->tensor->shape), naming_name(naming));
  return skipped;
}

bool is_finite(float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) != 0x7f800000u; }

/// `count` elements from `first` on, widened to f32.
void widen(const StoredTensor& tensor, std::int64_t first, std::int64_t count, float* out) {
  const std::byte* from = tensor.bytes.data() + first * dtype_bytes(tensor.dtype);
  if (tensor.dtype == DType::f32) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  CHECK(tensor.dtype == DType::bf16);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);  // the file may be unaligned
    out[i] = bf16_to_f32(bits);
  }
}

Result<void> fill_values(const Slot& slot, const Filled& filled, std::vector<float>& scratch) {
  const std::int64_t count = slot.count();
  scratch.resize(static_cast<std::size_t>(count));
  widen(*filled.entry->tensor, filled.first, count, scratch.data());
  bool finite = true;
  for (const float value : scratch) finite &= is_finite(value);
  if (!finite) {
    const auto at = std::find_if_not(scratch.begin(), scratch.end(), is_finite) - scratch.begin();
    return error("{}: tensor '{}': element {} is {}: not finite", *filled.entry->file_name, filled.entry->tensor->name,
                 filled.first + at, scratch[static_cast<std::size_t>(at)]);
  }
  to_memory(slot, scratch.data());
  return {};
}

/// Expert ids of hash layers: in range, and no expert twice for one token.
Result<void> fill_ids(const Slot& slot, const Filled& filled, std::int64_t experts) {
  const StoredTensor& tensor = *filled.entry->tensor;
  const std::int64_t width = slot.shape[1];
  for (std::int64_t i = 0; i < slot.count(); ++i) {
    const std::byte* from = tensor.bytes.data() + i * dtype_bytes(tensor.dtype);
    std::int64_t id = 0;
    if (tensor.dtype == DType::i64) {
      std::memcpy(&id, from, sizeof id);
    } else {
      std::int32_t narrow;
      std::memcpy(&narrow, from, sizeof narrow);
      id = narrow;
    }
    const std::int64_t *const end = slot.ids + i, *const row = end - i % width;
    if (id < 0 || id >= experts)
      return error("{}: tensor '{}': token {} has expert {}, outside [0, {})", *filled.entry->file_name, tensor.name,
                   i / width, id, experts);
    if (std::find(row, end, id) != end)
      return error("{}: tensor '{}': token {} has expert {} twice", *filled.entry->file_name, tensor.name, i / width,
                   id);
    slot.ids[i] = id;
  }
  return {};
}

Result<void> fill(const std::vector<Slot>& slots, const std::vector<Filled>& filled, const ModelConfig& config) {
  std::vector<float> scratch;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto done = slots[i].layout == Slot::Layout::ids ? fill_ids(slots[i], filled[i], config.experts)
                                                           : fill_values(slots[i], filled[i], scratch);
    if (!done) return done;
  }
  return {};
}

}  // namespace

Result<Model> load_model(const std::filesystem::path& folder) {
  auto config = load_model_config(folder);
  if (!config) return tl::unexpected(config.error());
  auto store = TensorStore::open(folder);
  if (!store) return tl::unexpected(store.error());
  const auto naming = detect_naming(*store);
  if (!naming) return tl::unexpected(naming.error());

  // Shapes are checked before anything is allocated: a config alone must not decide how much memory is asked for.
  std::vector<Filled> filled;
  for (const Slot& slot : plan_slots(*config)) {
    const auto source = locate(slot, *naming, *config, *store);
    if (!source) return tl::unexpected(source.error());
    filled.push_back(*source);
  }
  const auto skipped = count_mtp(*store, *naming);
  if (!skipped) return tl::unexpected(skipped.error());

  try {
    Model model;
    model.config = std::move(*config);
    model.skipped_mtp_tensors = *skipped;
    if (const auto done = fill(list_slots(model.config, model.weights), filled, model.config); !done)
      return tl::unexpected(done.error());
    model.hash = model_hash(model.config, model.weights);
    return model;
  } catch (const std::bad_alloc&) {
    return error("{}: not enough memory for the weights, widened to f32", store->file_name());
  }
}

}  // namespace plumb
