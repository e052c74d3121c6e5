#pragma once

#include "ops/experts/experts.h"
#include "ops/experts_nvfp4/nvfp4_matrix.h"
#include "switches/on_side.h"

namespace plumb {

/// The weights of one expert in NVFP4, one global scale a matrix.
struct Nvfp4Mlp {
  Nvfp4Matrix gate;
  Nvfp4Matrix up;
  Nvfp4Matrix down;
};
/// Quantises the f32 weights of `mlp`.
Nvfp4Mlp quantise_mlp_nvfp4(const GatedMlp& mlp);

/// The columns of mlp->nvfp4, dequantised to the scratch: products with them are those of experts_ref on the
/// dequantised weights, to the bit. mlp->nvfp4 must be there.
WeightColumns expert_columns_nvfp4(const ExpertColumns& a);

template <>
struct Sides<"moe.nvfp4_experts"> {
  static constexpr auto* off = &expert_columns_ref;
  static constexpr auto* on = &expert_columns_nvfp4;
};

}  // namespace plumb
