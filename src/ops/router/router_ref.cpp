#include <algorithm>
#include <cmath>
#include <vector>

#include "base/math.h"
#include "ops/router/router.h"

namespace plumb {
namespace {

double expert_score(float logit) { return std::sqrt(math::softplus(logit)); }

}  // namespace

void select_experts_ref(const SelectExperts& a) {
  const std::int64_t experts = a.logits.extent(1), k = a.experts.extent(1);
  CHECK(a.bias.extent(0) == experts && k <= experts && a.experts.extent(0) == a.logits.extent(0));
  std::vector<double> score(static_cast<std::size_t>(experts));
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  for (std::int64_t t = 0; t < a.logits.extent(0); ++t) {
    for (std::size_t e = 0; e < score.size(); ++e) {
      score[e] = expert_score(a.logits(t, e)) + a.bias(e);
      if (std::isnan(score[e])) score[e] = -math::kInfinity;
      order[e] = static_cast<std::int32_t>(e);
    }
    std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::int32_t x, std::int32_t y) {
      const double sx = score[static_cast<std::size_t>(x)], sy = score[static_cast<std::size_t>(y)];
      return sx > sy || (sx == sy && x < y);
    });
    std::copy_n(order.begin(), k, a.experts.row(t));
  }
}

void hash_experts_ref(const HashExperts& a) {
  const std::int64_t k = a.experts.extent(1);
  CHECK(a.table.extent(1) == k && static_cast<std::int64_t>(a.tokens.size()) == a.experts.extent(0));
  for (std::int64_t t = 0; t < a.experts.extent(0); ++t)
    for (std::int64_t i = 0; i < k; ++i)
      a.experts(t, i) = static_cast<std::int32_t>(a.table(a.tokens[static_cast<std::size_t>(t)], i));
}

void expert_weights_ref(const ExpertWeights& a) {
  CHECK(a.weights.extents() == a.experts.extents() && a.logits.extent(0) == a.experts.extent(0));
  for (std::int64_t t = 0; t < a.experts.extent(0); ++t) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < a.experts.extent(1); ++i) sum += expert_score(a.logits(t, a.experts(t, i)));
    for (std::int64_t i = 0; i < a.experts.extent(1); ++i)
      a.weights(t, i) = static_cast<float>(expert_score(a.logits(t, a.experts(t, i))) / sum * a.scaling);
  }
}

}  // namespace plumb
