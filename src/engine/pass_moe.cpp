#include "engine/pass.h"
#include "engine/pass_rows.h"
#include "ops/experts_grouped/experts_grouped.h"
#include "ops/experts_nvfp4/experts_nvfp4.h"
#include "ops/routed_scale/routed_scale.h"
#include "ops/router/router.h"

namespace plumb {

namespace {

// The sides of moe.nvfp4_experts as the experts op takes them; they are the same on every backend.
WeightColumns columns_on(const ExpertColumns& a) { return on_side<"moe.nvfp4_experts">(Backend::ref, a); }
WeightColumns columns_off(const ExpertColumns& a) { return off_side<"moe.nvfp4_experts">(Backend::ref, a); }

}  // namespace

void Pass::route(int layer, double scaling) {
  const MoeWeights& weights = layer_weights(layer).moe;
  const std::int64_t k = config_.experts_per_token;
  linear(normed_, weights.router, router_logits_);
  show(layer, "router.logits", router_logits_, {config_.experts});
  experts_.resize(static_cast<std::size_t>(rows_ * k));
  const auto experts = [&](std::int64_t begin, std::int64_t end) {
    return View<std::int32_t, 2>(experts_.data() + begin * k, {end - begin, k});
  };
  each_rows([&](std::int64_t begin, std::int64_t end) {
    if (layer_config(layer).moe == MoeKind::hash)
      op<&hash_experts_ref>()(
          {.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
           .table = weights.token_experts.view(),
           .experts = experts(begin, end)});
    else
      op<&select_experts_ref>()({.logits = router_logits_.view(begin, end),
                                 .bias = weights.router_bias.view(),
                                 .experts = experts(begin, end)});
  });
  show(layer, "router.indices", experts_, k);
  router_weights_.resize(rows_, k);
  each_rows([&](std::int64_t begin, std::int64_t end) {
    op<&expert_weights_ref>()({.logits = router_logits_.view(begin, end),
                               .experts = experts(begin, end),
                               .scaling = scaling,
                               .weights = router_weights_.view(begin, end)});
  });
  show(layer, "router.weights", router_weights_, {k});
}

void Pass::moe(int layer) {
  const RoutedScale scale =
      chosen_side<"moe.scale_on_output">(backend_, settings_, layer, config_.routed_scaling_factor);
  route(layer, scale.router);
  const std::int64_t k = config_.experts_per_token;
  y_.resize(rows_, config_.hidden_size);
  ExpertsScratch scratch;
  const bool nvfp4 = settings_.use(switch_index("moe.nvfp4_experts"), layer);
  chosen_side<"moe.grouped">(backend_, settings_, layer,
                             Experts{.x = normed_.view(),
                                     .experts = View<const std::int32_t, 2>(experts_.data(), {rows_, k}),
                                     .weights = router_weights_.view(),
                                     .routed = prepared_.routed[static_cast<std::size_t>(layer)],
                                     .shared = prepared_.shared[static_cast<std::size_t>(layer)],
                                     .limit = config_.swiglu_limit,
                                     .output_scale = scale.output,
                                     .out = y_.view(),
                                     .scratch = &scratch,
                                     .executor = &executor_,
                                     .columns = nvfp4 ? &columns_on : &columns_off});
}

}  // namespace plumb
