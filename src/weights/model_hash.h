#pragma once

#include <string>

#include "weights/model.h"

namespace plumb {

/// XXH3-128, as 32 hex digits, of everything that decides a number: each numeric field of the config (doubles by their
/// bits; the name is left out), then for each weight in the order of list_slots its canonical name, shape and values as
/// they are in memory (f32 little-endian, ids as i64). It therefore depends neither on the dialect of the config, nor
/// on the naming and sharding of the files, nor on whether the same values were stored as bf16 or fp32. It does change
/// when the layout in memory changes.
std::string model_hash(const ModelConfig& config, const ModelWeights& weights);

}  // namespace plumb
