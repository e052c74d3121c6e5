#include <algorithm>
#include <vector>

#include "faults/forms.h"
#include "ops/indexer_fused/indexer_fused.h"
#include "ops/select_topk/select_topk.h"

namespace plumb::faults {
namespace {

// sum over h of w_h * (q_h . key): the ReLU of each head's dot product is missing, so heads that should be silent vote.
float score_without_relu(const Indexer& a, std::int64_t t, std::int64_t n) {
  const float* key = a.keys.row(n);
  double score = 0.0;
  for (std::int64_t h = 0; h < a.q.extent(1); ++h) {
    double dot = 0.0;
    for (std::int64_t d = 0; d < a.q.extent(2); ++d) dot += static_cast<double>(a.q(t, h, d)) * key[d];
    score += a.head_weights(t, h) * dot;
  }
  return static_cast<float>(score);
}

void select_without_relu(const Indexer& a) {
  TopK best(a.selected.extent(1));
  for (std::int64_t t = 0; t < a.q.extent(0); ++t) {
    best.clear();
    for (std::int64_t n = 0; n < (a.first_position + t + 1) / a.rate; ++n)
      best.offer(score_without_relu(a, t, n), static_cast<std::int32_t>(n));
    best.write(a.selected.row(t));
  }
}

// Every head votes alike: the weights that the model computes for each token are ignored.
void select_with_uniform_heads(const Indexer& a) {
  Indexer uniform = a;
  std::vector<float> ones(static_cast<std::size_t>(a.head_weights.size()), 1.0f);
  uniform.head_weights = View<const float, 2>(ones.data(), a.head_weights.extents());
  indexer_fused_ref(uniform);
}

}  // namespace

void plant_index_without_relu(const Dose&) { replace_on_side<"indexer.fused">(&select_without_relu); }
void plant_index_uniform_heads(const Dose&) { replace_on_side<"indexer.fused">(&select_with_uniform_heads); }

}  // namespace plumb::faults
