#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tensor/safetensors.h"

namespace plumb {

/// All tensors of a checkpoint folder by name: of model.safetensors, or of the shards that model.safetensors.index.json
/// names. Errors: neither or both are there; a shard is missing or bad; index and shards disagree about a tensor.
class TensorStore {
 public:
  struct Entry {
    const StoredTensor* tensor;
    const std::string* file_name;
    bool used;
  };

  static Result<TensorStore> open(const std::filesystem::path& folder);
  /// The tensors of one file that is open already.
  static TensorStore of(SafetensorsFile file);

  /// Null when there is none of that name.
  Entry* find(const std::string& name);
  const std::unordered_map<std::string, Entry>& entries() const { return entries_; }
  /// The file that lists all tensors, for messages.
  const std::string& file_name() const { return file_name_; }

 private:
  void add(SafetensorsFile file);
  static Result<TensorStore> open_shards(const std::filesystem::path& index);

  std::string file_name_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace plumb
