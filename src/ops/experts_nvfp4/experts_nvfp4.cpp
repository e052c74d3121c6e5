#include "ops/experts_nvfp4/experts_nvfp4.h"

namespace plumb {

Nvfp4Mlp quantise_mlp_nvfp4(const GatedMlp& mlp) {
  return {quantise_nvfp4(mlp.gate), quantise_nvfp4(mlp.up), quantise_nvfp4(mlp.down)};
}

WeightColumns expert_columns_nvfp4(const ExpertColumns& a) {
  CHECK(a.mlp->nvfp4 != nullptr);
  const Nvfp4Matrix& matrix = a.matrix == MlpMatrix::gate ? a.mlp->nvfp4->gate
                              : a.matrix == MlpMatrix::up ? a.mlp->nvfp4->up
                                                          : a.mlp->nvfp4->down;
  a.scratch->resize(static_cast<std::size_t>(matrix.in * (a.end - a.begin)));
  dequantise_nvfp4(matrix, a.begin, a.end, a.scratch->data());
  return {a.scratch->data(), a.end - a.begin};
}

}  // namespace plumb
