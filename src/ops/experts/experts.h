#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "base/view.h"
#include "switches/backend.h"

namespace plumb {

struct Nvfp4Mlp;

/// One gated MLP, weights transposed: gate, up [d, inner] f32, down [inner, d] f32. `nvfp4`: the same weights
/// quantised, where the launch asked for them.
struct GatedMlp {
  View<const float, 2> gate;
  View<const float, 2> up;
  View<const float, 2> down;
  const Nvfp4Mlp* nvfp4 = nullptr;
};

/// Columns [begin, end) of one matrix of an MLP, wanted as f32. `scratch` is for a side that has to make them.
enum class MlpMatrix { gate, up, down };
struct ExpertColumns {
  const GatedMlp* mlp;
  MlpMatrix matrix;
  std::int64_t begin;
  std::int64_t end;
  std::vector<float>* scratch;
};
/// Rows of those columns, `stride` floats apart, valid until the scratch is used again.
struct WeightColumns {
  const float* data;
  std::int64_t stride;
};
/// The f32 weights themselves.
WeightColumns expert_columns_ref(const ExpertColumns& a);

/// Working memory of the experts op, reused from call to call.
struct ExpertsScratch {
  std::vector<std::int64_t> rows;  // the rows an expert works on
  std::vector<float> weights;      // and their weights for it
  std::vector<float> x;            // gathered inputs
  std::vector<float> gate, up, down;
  std::vector<float> columns;  // weights that were not f32
  std::vector<double> sums;
  std::vector<std::int64_t> starts;  // cpu: where each expert's rows begin in `rows`
  std::vector<float> hidden;         // cpu: gated products of all rows and experts
};

/// out[t] = shared(x[t]) + output_scale * sum over the chosen experts e of weight[t, e] * mlp_e(x[t])
///   mlp(x) = down (silu(min(gate x, limit)) * clamp(up x, -limit, limit))
///
/// x, out  [rows, d] f32 · experts [rows, k] i32 · weights [rows, k] f32
/// The routed sum is a chain in ascending expert id, multiplied once by output_scale (1 where the weights hold the
/// scaling factor); the shared expert is added last (weight 1): f64, rounded once (ref); f32, fused multiply-adds
/// (cpu). The outputs of each linear layer and the gated product are rounded to f32. The gate has no lower clamp.
/// columns: where the weights of routed experts come from. executor: where the op may spread its work; null: all on the
/// calling thread, with `scratch`.
/// Source: model specification 3.11.
struct Experts {
  View<const float, 2> x;
  View<const std::int32_t, 2> experts;
  View<const float, 2> weights;
  std::span<const GatedMlp> routed;
  GatedMlp shared;
  double limit;
  double output_scale;
  View<float, 2> out;
  ExpertsScratch* scratch;
  Executor* executor = nullptr;
  WeightColumns (*columns)(const ExpertColumns&) = &expert_columns_ref;
};
/// Rows are gathered by expert in tiles of kExpertRowTile, so each tile reads the weights of its experts.
inline constexpr std::int64_t kExpertRowTile = 32;
void experts_ref(const Experts& a);
void experts_cpu(const Experts& a);

template <>
inline constexpr auto kCpuTwin<&experts_ref> = &experts_cpu;

/// gate[i] = silu(min(gate[i], limit)) * clamp(up[i], -limit, limit), f64, rounded to f32.
void gated_product(std::span<float> gate, std::span<const float> up, double limit);
/// The same in f32.
void gated_product_cpu(std::span<float> gate, std::span<const float> up, float limit);

}  // namespace plumb
