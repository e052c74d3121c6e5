#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace plumb {

/// Every port of one sequence, positions concatenated over passes, by name.
class TraceCollector final : public Observer {
 public:
  /// Exactly one of f32 and i32 is used. Shapes as in golden traces: [positions, ...]; compressed rows
  /// ("compressed_kv", "indexer.keys") [1, rows, width].
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<float> f32;
    std::vector<std::int32_t> i32;
  };

  void visit(const Port& port) override;
  /// Names in the order of their first visit.
  const std::vector<std::string>& names() const { return names_; }
  /// The tensor so far. "indexer.scores" is as wide as its last row needs; rows that saw less end in -inf.
  const Tensor& tensor(const std::string& name) const { return tensors_.at(name); }
  bool has(const std::string& name) const { return tensors_.contains(name); }

 private:
  std::vector<std::string> names_;
  std::map<std::string, Tensor> tensors_;
};

/// Every port of a model with that many layers, in the order of computation; a layer has those of its kind only.
std::vector<std::string> port_names(std::int64_t layers);

/// Runs `ids` from an empty state in chunks of `chunk` tokens (0: all in one) with `settings` and returns logits
/// [ids, vocab]; every port goes to `observer` when it is not null.
std::vector<float> run_prompt(Engine& engine, std::span<const std::int32_t> ids, std::int64_t chunk,
                              const Settings& settings, Observer* observer);

/// A golden trace: all switches off, every tap and `logits` [ids, vocab] f32, written as safetensors to `out` in the
/// order of port_names: the same bytes whatever the chunk. Errors: no ids, an id outside the vocabulary, more ids than
/// the model has positions, a negative chunk, the file.
Result<void> write_golden(Engine& engine, std::span<const std::int32_t> ids, std::int64_t chunk,
                          const std::filesystem::path& out);

}  // namespace plumb
