#include "weights/tensor_store.h"

#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "base/durable_file.h"
#include "tensor/strict_json.h"

namespace plumb {
namespace {

constexpr std::size_t kMaxIndexBytes = 256 << 20;
constexpr std::size_t kMaxShards = 4096;

using WeightMap = std::map<std::string, std::string>;  // tensor name -> shard name

Result<WeightMap> weight_map_of(const std::filesystem::path& path) {
  const auto text = read_file(path, kMaxIndexBytes);
  if (!text) return tl::unexpected(text.error());
  const auto document = parse_json_strictly(*text, path.string());
  if (!document) return tl::unexpected(document.error());
  if (!document->is_object() || !document->contains("weight_map") || !(*document)["weight_map"].is_object())
    return error("{}: no object 'weight_map'", path.string());
  WeightMap map;
  for (const auto& [name, shard] : (*document)["weight_map"].items()) {
    if (!shard.is_string())
      return error("{}: tensor '{}': shard {} is not a string", path.string(), name, shown(shard));
    const auto& file = shard.get_ref<const std::string&>();
    if (file.find('/') != std::string::npos || !file.ends_with(".safetensors"))
      return error("{}: tensor '{}': '{}' is not the name of a safetensors file in this folder", path.string(), name,
                   file);
    map[name] = file;
  }
  return map;
}

/// Every tensor of the shard must be where the index says.
Result<void> check_shard(const SafetensorsFile& file, const std::string& shard, const WeightMap& map,
                         const std::string& index) {
  for (const StoredTensor& tensor : file.tensors()) {
    const auto stated = map.find(tensor.name);
    if (stated == map.end())
      return error("{}: tensor '{}' is not in the weight_map of {}", file.file_name(), tensor.name, index);
    if (stated->second != shard)
      return error("{}: tensor '{}' is here, but {} puts it into '{}'", file.file_name(), tensor.name, index,
                   stated->second);
  }
  return {};
}

}  // namespace

void TensorStore::add(SafetensorsFile file) {
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const StoredTensor& tensor : files_.back()->tensors())
    entries_[tensor.name] = {&tensor, &files_.back()->file_name(), false};
}

Result<TensorStore> TensorStore::open_shards(const std::filesystem::path& index) {
  const auto map = weight_map_of(index);
  if (!map) return tl::unexpected(map.error());
  std::set<std::string> shards;
  for (const auto& [name, shard] : *map) shards.insert(shard);
  if (shards.size() > kMaxShards) return error("{}: more than {} shards", index.string(), kMaxShards);
  TensorStore store;
  store.file_name_ = index.string();
  for (const std::string& shard : shards) {
    auto file = SafetensorsFile::open(index.parent_path() / shard);
    if (!file) return error("{} (named by {})", file.error().message, index.string());
    if (const auto good = check_shard(*file, shard, *map, index.string()); !good) return tl::unexpected(good.error());
    store.add(std::move(*file));
  }
  for (const auto& [name, shard] : *map)
    if (store.find(name) == nullptr)
      return error("{}: tensor '{}' should be in '{}', which does not hold it", index.string(), name, shard);
  return store;
}

Result<TensorStore> TensorStore::open(const std::filesystem::path& folder) {
  if (const auto there = check_folder(folder); !there) return tl::unexpected(there.error());
  const auto single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  std::error_code ignored;  // a file that cannot be looked at is reported when it is opened
  // A link is there even where it leads to nothing: opening it says so.
  const auto is_there = [&](const std::filesystem::path& file) {
    return std::filesystem::exists(std::filesystem::symlink_status(file, ignored));
  };
  const bool has_single = is_there(single), has_index = is_there(index);
  if (has_single && has_index)
    return error("{}: holds model.safetensors and model.safetensors.index.json; remove the one that is not meant",
                 folder.string());
  if (has_index) return open_shards(index);
  if (!has_single)
    return error("{}: holds neither model.safetensors nor model.safetensors.index.json", folder.string());
  auto file = SafetensorsFile::open(single);
  if (!file) return tl::unexpected(file.error());
  return of(std::move(*file));
}

TensorStore TensorStore::of(SafetensorsFile file) {
  TensorStore store;
  store.file_name_ = file.file_name();
  store.add(std::move(file));
  return store;
}

TensorStore::Entry* TensorStore::find(const std::string& name) {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second;
}

}  // namespace plumb
