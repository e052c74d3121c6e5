#pragma once

#include <filesystem>

#include "base/result.h"
#include "weights/model.h"
#include "weights/tensor_map.h"

namespace plumb {

/// Writes the weights as one safetensors file (f32, expert ids i64) in the given naming. With the same config.json it
/// loads to the same hash. Errors: the system's reason.
Result<void> export_weights(const Model& model, Naming naming, const std::filesystem::path& path);

}  // namespace plumb
