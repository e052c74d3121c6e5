#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace plumb::investigator {

/// What a model's config.json says that the probes aim at: window (sliding_window), index_topk, max_len
/// (max_position_embeddings). A key that is not there, null or no positive integer is left out. Errors: no file, no
/// JSON object, none of the keys.
Result<std::map<std::string, std::int64_t>> read_model_facts(const std::filesystem::path& config);

}  // namespace plumb::investigator
