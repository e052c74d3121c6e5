#include "engine/cost.h"

#include <gtest/gtest.h>

#include "engine/random_world.h"

namespace plumb {
namespace {

template <int R>
double size_of(const Array<float, R>& array) {
  return static_cast<double>(array.view().size());
}

double size_of(const MlpWeights& mlp) { return size_of(mlp.gate) + size_of(mlp.up) + size_of(mlp.down); }

// Every matrix that a token meets, counted from the weights themselves.
double matrix_weights(const Model& model, bool all_experts) {
  double sum = size_of(model.weights.head);
  for (const LayerWeights& layer : model.weights.layers) {
    const AttentionWeights& a = layer.attention;
    sum += size_of(a.q_a) + size_of(a.q_b) + size_of(a.kv) + size_of(a.o_a) + size_of(a.o_b);
    sum += size_of(a.compressor.kv) + size_of(a.compressor.gate) + size_of(a.indexer.compressor.kv) +
           size_of(a.indexer.compressor.gate) + size_of(a.indexer.q_b) + size_of(a.indexer.head_weights);
    sum += size_of(layer.attention_hc.fn) + size_of(layer.moe_hc.fn) + size_of(layer.moe.router) +
           size_of(layer.moe.shared);
    const std::size_t experts =
        all_experts ? layer.moe.experts.size() : static_cast<std::size_t>(model.config.experts_per_token);
    for (std::size_t e = 0; e < experts; ++e) sum += size_of(layer.moe.experts[e]);
  }
  return sum;
}

TEST(PassCost, CountsEveryMatrixOfTheModelOnceAToken) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const auto model = random_model(seed);
    const ModelConfig& c = model->config;
    // The first token sees one key a layer and no row.
    const PassCost one = pass_cost(c, {.sequences = 1, .rows = 1, .context = 0});
    const double keys = static_cast<double>(static_cast<std::int64_t>(c.layers.size()) * c.head_dim);
    EXPECT_DOUBLE_EQ(one.operations, 2 * matrix_weights(*model, false) + 4 * keys * static_cast<double>(c.heads));
    EXPECT_NEAR(one.weight_bytes, 4 * (matrix_weights(*model, false) + keys), 1e-6 * one.weight_bytes);
    // Ten thousand tokens meet every expert.
    const PassCost many = pass_cost(c, {.sequences = 10000, .rows = 1, .context = 0});
    EXPECT_NEAR(many.weight_bytes, 4 * (matrix_weights(*model, true) + 1e4 * keys), 1e-6 * many.weight_bytes);
    EXPECT_NEAR(many.operations, 1e4 * one.operations, 1e-9 * many.operations);
  }
}

TEST(PassCost, AttentionIsBoundedByWindowAndSelection) {
  ModelConfig c = random_model(1)->config;
  c.layers = {{AttentionKind::compressed_sparse, 4, MoeKind::scored}};
  const auto at = [&](std::int64_t context) {
    return pass_cost(c, {.sequences = 1, .rows = 1, .context = context}).operations;
  };
  // From 1,000 to 2,000 positions only the index rows grow: 250 more.
  EXPECT_NEAR(at(2000) - at(1000), 2.0 * 250 * static_cast<double>(c.index_heads * c.index_head_dim), 1e-6 * at(0));
  c.layers[0] = {AttentionKind::sliding, 0, MoeKind::scored};
  EXPECT_DOUBLE_EQ(at(2000), at(1000));
}

}  // namespace
}  // namespace plumb
