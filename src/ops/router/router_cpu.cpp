#include <vector>

#include "base/lanes/lanes.h"
#include "base/math.h"
#include "ops/router/router.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "ops/router/router_cpu.inc"
#include "base/lanes/each_isa.inc"

void score(const float* logits, const float* bias, std::int64_t experts, double* scores) {
  PLUMB_ON_BEST_ISA(score_experts(logits, bias, experts, scores));
}

}  // namespace

void select_experts_cpu(const SelectExperts& a) {
  const std::int64_t experts = a.logits.extent(1), k = a.experts.extent(1);
  CHECK(a.bias.extent(0) == experts && k <= experts && a.experts.extent(0) == a.logits.extent(0));
  std::vector<double> scores(static_cast<std::size_t>(experts));
  for (std::int64_t t = 0; t < a.logits.extent(0); ++t) {
    score(a.logits.row(t), a.bias.data(), experts, scores.data());
    std::int32_t* chosen = a.experts.row(t);
    for (std::int64_t i = 0; i < k; ++i) {
      // The first of those not chosen yet, then whatever is larger: so the lower id wins ties, among -inf too.
      std::int32_t best = -1;
      for (std::int32_t e = 0; e < experts; ++e)
        if (!std::isnan(scores[static_cast<std::size_t>(e)]) &&
            (best < 0 || scores[static_cast<std::size_t>(e)] > scores[static_cast<std::size_t>(best)]))
          best = e;
      chosen[i] = best;
      scores[static_cast<std::size_t>(best)] = math::kNan;  // chosen
    }
  }
}

}  // namespace plumb
