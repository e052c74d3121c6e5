#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "runtime/generator.h"
#include "runtime/runtime.h"
#include "weights/model.h"

namespace plumb {

/// A checkpoint in memory and the generator that runs it.
struct OpenedModel {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Generator> generator;
};

/// Loads a checkpoint and starts its generator on `threads` threads (0: as many as there are cores).
/// Errors: those of load_model and make_generator, and more than 256 threads.
Result<OpenedModel> open_model(const std::filesystem::path& folder, int threads, const RuntimeOptions& options);

}  // namespace plumb
