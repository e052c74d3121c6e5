#include <vector>

#include "faults/forms.h"
#include "ops/indexer_fused/indexer_fused.h"

namespace plumb::faults {
namespace {

// Every head votes alike: the weights that the model computes for each token are ignored.
void select_with_uniform_heads(const Indexer& a) {
  Indexer uniform = a;
  std::vector<float> ones(static_cast<std::size_t>(a.head_weights.size()), 1.0f);
  uniform.head_weights = View<const float, 2>(ones.data(), a.head_weights.extents());
  indexer_fused_ref(uniform);
}

}  // namespace

void plant_index_uniform_heads(const Dose&) { replace_on_side<"indexer.fused">(&select_with_uniform_heads); }

}  // namespace plumb::faults
