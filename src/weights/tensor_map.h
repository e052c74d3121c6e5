#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weights/model.h"

namespace plumb {

/// How tensors are called in a checkpoint.
enum class Naming { release, transformers };

std::string_view naming_name(Naming naming);

/// One weight of the model and its place in memory. Files hold matrices as [out, in].
struct Slot {
  enum class Layout {
    plain,       // memory as in the file
    transposed,  // file [out, in], memory [in, out]
    grouped,     // file [groups*out, in], memory [groups, in, out]
    ids,         // int64 token -> expert ids, memory as in the file
  };
  std::string name;  // in the release's naming, which is the canonical one
  Layout layout;
  std::vector<std::int64_t> shape;  // in the file
  std::int64_t groups;              // 1 unless grouped
  float* values;                    // null for ids
  std::int64_t* ids;                // null unless ids

  std::int64_t count() const;
};

/// Every weight that the config asks for, in the order of the forward pass. Empty arrays of `weights` are allocated
/// (zero); arrays that exist must have their shape.
std::vector<Slot> list_slots(const ModelConfig& config, ModelWeights& weights);

/// The same list before there is memory: both pointers of every slot are null.
std::vector<Slot> plan_slots(const ModelConfig& config);

/// Where a slot lies in a file: `count()` elements from `first` on of the tensor called any one of `names`, which has
/// the whole `shape`. transformers stacks the experts, the release does not.
struct Source {
  std::vector<std::string> names;  // spellings, the current one first
  std::vector<std::int64_t> shape;
  std::int64_t first;
};

Source source_of(const Slot& slot, Naming naming, const ModelConfig& config);

/// Copies file order to memory order, or back.
void to_memory(const Slot& slot, const float* file);
void to_file(const Slot& slot, float* file);

}  // namespace plumb
