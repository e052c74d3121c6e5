#pragma once

#include "ops/experts/experts.h"

namespace plumb {

/// scratch->down [rows, d] = mlp(x) for x [rows, d], as the reference computes it: f64 chains, weights from `columns`.
struct MlpRun {
  const GatedMlp* mlp;
  WeightColumns (*columns)(const ExpertColumns&);
  const float* x;
  std::int64_t rows;
  double limit;
  ExpertsScratch* scratch;
};
void run_mlp_ref(const MlpRun& a);

/// Runs `run` over tiles of kExpertRowTile rows, on the executor where there is one, each thread with its own scratch.
void for_each_row_tile(const Experts& a, void (*run)(const Experts& tile));

}  // namespace plumb
