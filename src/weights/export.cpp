#include "weights/export.h"

#include <unordered_map>

#include "tensor/safetensors.h"

namespace plumb {
namespace {

/// A tensor of the file while its slots are put together.
struct Assembled {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return static_cast<std::size_t>(count);
}

}  // namespace

Result<void> export_weights(const Model& model, Naming naming, const std::filesystem::path& path) {
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  std::vector<Assembled> tensors;
  std::unordered_map<std::string, std::size_t> index;
  // Only read; no array of a loaded model is empty, so list_slots allocates nothing.
  for (const Slot& slot : list_slots(model.config, const_cast<ModelWeights&>(model.weights))) {
    const Source source = source_of(slot, naming, model.config);
    const std::string& name = source.names.front();
    if (slot.layout == Slot::Layout::ids) {
      writer.add_i64(name, source.shape, {slot.ids, static_cast<std::size_t>(slot.count())});
      continue;
    }
    const auto [at, is_new] = index.try_emplace(name, tensors.size());
    if (is_new) tensors.push_back({name, source.shape, std::vector<float>(count_of(source.shape))});
    to_file(slot, tensors[at->second].values.data() + source.first);
  }
  for (const Assembled& tensor : tensors) writer.add_f32(tensor.name, tensor.shape, tensor.values);
  return writer.write(path);
}

}  // namespace plumb
