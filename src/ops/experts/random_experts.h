#pragma once

// For tests only: random inputs of the experts op.

#include <algorithm>
#include <vector>

#include "ops/experts/experts.h"
#include "ops/twin.h"

namespace plumb {

struct ExpertsShape {
  std::int64_t rows, dim, inner, experts, chosen;
};

/// Rows that choose `chosen` experts each, now and then the same one twice (a hash table may); expert 0 is popular, the
/// last one is chosen by nobody and its weights are poison.
struct RandomExperts {
  RandomExperts(const ExpertsShape& s, std::uint64_t seed) : shape(s) {
    Rng rng{seed};
    x = random_floats(rng, s.rows * s.dim);
    for (std::int64_t e = 0; e <= s.experts; ++e)
      for (const std::int64_t in : {s.dim, s.dim, s.inner})
        memory.push_back(random_floats(rng, s.dim * s.inner, 1.0 / std::sqrt(static_cast<double>(in))));
    for (std::size_t i = 0; i < 3; ++i)
      std::fill(memory[memory.size() - 6 + i].begin(), memory[memory.size() - 6 + i].end(),
                std::numeric_limits<float>::quiet_NaN());
    for (std::size_t e = 0; e < memory.size(); e += 3)
      mlps.push_back({{memory[e].data(), {s.dim, s.inner}},
                      {memory[e + 1].data(), {s.dim, s.inner}},
                      {memory[e + 2].data(), {s.inner, s.dim}}});
    shared = mlps.back();
    mlps.pop_back();
    const auto live = static_cast<std::uint64_t>(s.experts - 1);
    for (std::int64_t i = 0; i < s.rows * s.chosen; ++i) {
      ids.push_back(rng.below(3) == 0 ? 0 : static_cast<std::int32_t>(rng.below(live)));
      weights.push_back(static_cast<float>(rng.uniform()));
    }
  }
  /// All rows, output to `out`.
  Experts args(float* out, ExpertsScratch* scratch, Executor* executor = nullptr) const {
    return {.x = {x.data(), {shape.rows, shape.dim}},
            .experts = {ids.data(), {shape.rows, shape.chosen}},
            .weights = {weights.data(), {shape.rows, shape.chosen}},
            .routed = mlps,
            .shared = shared,
            .limit = 0.75,
            .output_scale = 1.5,
            .out = {out, {shape.rows, shape.dim}},
            .scratch = scratch,
            .executor = executor};
  }

  ExpertsShape shape;
  std::vector<float> x, weights;
  std::vector<std::vector<float>> memory;
  std::vector<GatedMlp> mlps;
  GatedMlp shared;
  std::vector<std::int32_t> ids;
};

}  // namespace plumb
