#include <algorithm>
#include <cstring>
#include <new>

#include "weights/model.h"
#include "weights/model_hash.h"
#include "weights/stored_weight.h"
#include "weights/tensor_map.h"
#include "weights/tensor_store.h"

namespace plumb {
namespace {

constexpr std::string_view kMtpPrefix = "mtp.";

Result<Naming> detect_naming(TensorStore& store) {
  if (store.find("embed.weight") != nullptr) return Naming::release;
  if (store.find("model.embed_tokens.weight") != nullptr) return Naming::transformers;
  return error(
      "{}: neither 'embed.weight' (the release's names) nor 'model.embed_tokens.weight' (transformers') is there: not "
      "a "
      "DeepSeek-V4 checkpoint in a known naming",
      store.file_name());
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

/// Expert ids of hash layers: in range, and no expert twice for one token.
Result<void> fill_ids(const Slot& slot, const TensorStore::Entry& entry, std::int64_t experts) {
  const StoredTensor& tensor = *entry.tensor;
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
      return error("{}: tensor '{}': token {} has expert {}, outside [0, {})", *entry.file_name, tensor.name, i / width,
                   id, experts);
    if (std::find(row, end, id) != end)
      return error("{}: tensor '{}': token {} has expert {} twice", *entry.file_name, tensor.name, i / width, id);
    slot.ids[i] = id;
  }
  return {};
}

Result<void> fill(const std::vector<Slot>& slots, const std::vector<StoredWeight>& stored, const ModelConfig& config) {
  std::vector<float> values;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].layout == Slot::Layout::ids) {
      if (const auto done = fill_ids(slots[i], *stored[i].tensor, config.experts); !done) return done;
      continue;
    }
    if (const auto done = read_weight(slots[i], stored[i], config, values); !done) return done;
    to_memory(slots[i], values.data());
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
  std::vector<StoredWeight> stored;
  for (const Slot& slot : plan_slots(*config)) {
    const auto found = locate_weight(slot, *naming, *config, *store);
    if (!found) return tl::unexpected(found.error());
    stored.push_back(*found);
  }
  const auto skipped = count_mtp(*store, *naming);
  if (!skipped) return tl::unexpected(skipped.error());

  try {
    Model model;
    model.config = std::move(*config);
    model.skipped_mtp_tensors = *skipped;
    if (const auto done = fill(list_slots(model.config, model.weights), stored, model.config); !done)
      return tl::unexpected(done.error());
    model.hash = model_hash(model.config, model.weights);
    return model;
  } catch (const std::bad_alloc&) {
    return error("{}: not enough memory for the weights, widened to f32", store->file_name());
  }
}

}  // namespace plumb
