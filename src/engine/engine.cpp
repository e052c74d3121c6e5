#include "engine/engine.h"

#include <utility>

#include "engine/pass.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace plumb {
namespace {

constexpr std::int64_t kRowsKept = 1024;  // rows of a pass whose memory is kept

}  // namespace

struct Engine::Impl {
  Impl(std::shared_ptr<const Model> m, std::shared_ptr<Executor> e, Backend b, const Settings& s)
      : model(std::move(m)),
        executor(std::move(e)),
        backend(b),
        launch(s),
        layout(model->config, launch),
        prepared(*model, launch) {}

  std::shared_ptr<const Model> model;
  std::shared_ptr<Executor> executor;
  Backend backend;
  Settings launch;
  StateLayout layout;
  Prepared prepared;
  std::unique_ptr<Pass> pass;  // its memory is used again by the next one
};

Engine::Engine(std::shared_ptr<const Model> model, std::shared_ptr<Executor> executor, Backend backend,
               const Settings& launch) {
  const ModelConfig& config = model->config;
  CHECK(config.profile == Profile::math);
  CHECK(config.hc_mult <= kMaxStreams && config.heads <= kMaxHeads && config.layers.size() <= kMaxLayers);
  impl_ = std::make_unique<Impl>(std::move(model), std::move(executor), backend, launch);
}

Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

const ModelConfig& Engine::config() const { return impl_->model->config; }
const StateLayout& Engine::layout() const { return impl_->layout; }
Backend Engine::backend() const { return impl_->backend; }

std::int64_t Engine::logits_rows(const Batch& batch) {
  std::int64_t rows = 0;
  for (const BatchSequence& sequence : batch.sequences)
    rows += sequence.all_logits ? static_cast<std::int64_t>(sequence.tokens.size()) : 1;
  return rows;
}

void Engine::forward(const Batch& batch, View<float, 2> logits) {
  CHECK(batch.settings->agrees_at_launch(impl_->launch));
  if (impl_->pass == nullptr)
    impl_->pass =
        std::make_unique<Pass>(*impl_->model, impl_->prepared, impl_->layout, *impl_->executor, impl_->backend);
  impl_->pass->run(batch, logits);
  // A long prompt computed in one pass needs much that no chunk needs again.
  if (impl_->pass->rows() > kRowsKept) impl_->pass.reset();
}

}  // namespace plumb
