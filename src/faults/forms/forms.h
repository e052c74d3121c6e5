#pragma once

#include <span>

#include "faults/plants.h"

namespace plumb::faults {

// The plants of each host switch. What each does stands at its function, in the file of that host.
std::span<const Plant> attention_split_k_plants();
std::span<const Plant> indexer_fused_plants();
std::span<const Plant> prefix_cache_plants();
std::span<const Plant> prefix_index_plants();
std::span<const Plant> prefill_chunked_plants();
std::span<const Plant> compressor_fused_plants();
std::span<const Plant> rope_table_plants();
std::span<const Plant> moe_plants();
std::span<const Plant> fp8_plants();
std::span<const Plant> sampler_fast_topk_plants();
std::span<const Plant> decode_plan_reuse_plants();
std::span<const Plant> batch_continuous_plants();
std::span<const Plant> mhc_plants();
std::span<const Plant> no_switch_plants();
std::span<const Plant> chat_render_plants();

}  // namespace plumb::faults
