#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "engine/state.h"
#include "model/config.h"
#include "runtime/generator.h"
#include "runtime/page_pool.h"
#include "runtime/runtime.h"

namespace plumb {

/// Window pages that a pass of `tokens` tokens may touch, with the window before it; borders need not be aligned.
std::int64_t pass_window_pages(const StateLayout& layout, std::int64_t tokens);

/// Fills in what was left at zero. Errors: options that contradict each other or the model.
Result<RuntimeOptions> complete_options(const RuntimeOptions& options, const ModelConfig& config);

struct PlannedPools {
  PagePool pages;
  PagePool
      window_pages;  // for all running sequences at chunk size, and beside them one whole prompt of the largest size
};

/// Reserves all memory for state. Errors: the machine does not have it; the message has the numbers.
Result<PlannedPools> make_pools(const RuntimeOptions& plan, const StateLayout& layout);

/// Why a request cannot be served under this plan, whatever else runs.
std::optional<Rejection> refuse_request(const GenerateRequest& request, const RuntimeOptions& plan,
                                        std::int64_t vocab_size);

}  // namespace plumb
