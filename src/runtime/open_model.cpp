#include "runtime/open_model.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace plumb {
namespace {

constexpr int kMaxThreads = 256;

}  // namespace

Result<OpenedModel> open_model(const std::filesystem::path& folder, int threads, const RuntimeOptions& options) {
  if (threads < 0 || threads > kMaxThreads) return error("{} threads: must be from 0 to {}", threads, kMaxThreads);
  if (threads == 0) threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  auto loaded = load_model(folder);
  if (!loaded) return tl::unexpected(loaded.error());
  auto model = std::make_shared<const Model>(std::move(*loaded));
  std::shared_ptr<ThreadPool> pool;
  try {
    pool = std::make_shared<ThreadPool>(threads);
  } catch (const std::system_error& e) {
    return error("{} threads cannot be started: {}; lower --threads, or the limit is on memory", threads,
                 e.code().message());
  }
  auto generator = make_generator(model, std::move(pool), options);
  if (!generator) return tl::unexpected(generator.error());
  return OpenedModel{std::move(model), std::move(*generator)};
}

}  // namespace plumb
