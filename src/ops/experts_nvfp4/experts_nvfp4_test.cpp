#include "ops/experts_nvfp4/experts_nvfp4.h"

#include <tuple>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/experts/random_experts.h"
#include "ops/experts_grouped/experts_grouped.h"

namespace plumb {
namespace {

// The world with its experts quantised, and their dequantised weights as an f32 model would hold them.
struct Quantised {
  explicit Quantised(RandomExperts& world) {
    mlps.reserve(world.mlps.size());
    for (GatedMlp& mlp : world.mlps) {
      mlps.push_back(quantise_mlp_nvfp4(mlp));
      mlp.nvfp4 = &mlps.back();
      const auto widen = [&](const Nvfp4Matrix& matrix) {
        memory.emplace_back(static_cast<std::size_t>(matrix.in * matrix.out));
        dequantise_nvfp4(matrix, 0, matrix.out, memory.back().data());
        return View<const float, 2>(memory.back().data(), {matrix.in, matrix.out});
      };
      dequantised.push_back({widen(mlps.back().gate), widen(mlps.back().up), widen(mlps.back().down)});
    }
  }
  std::vector<Nvfp4Mlp> mlps;
  std::vector<std::vector<float>> memory;
  std::vector<GatedMlp> dequantised;
};

class ExpertsNvfp4Twin : public testing::TestWithParam<std::tuple<Backend, ExpertsShape>> {};

TEST_P(ExpertsNvfp4Twin, IsTheReferenceOnDequantisedWeightsAndWithinBudgetOfF32) {
  const auto& [backend, shape] = GetParam();
  RandomExperts world(shape, 201);
  const Quantised quantised(world);
  const std::int64_t size = shape.rows * shape.dim;
  ExpertsScratch scratch;
  Guarded<float> plain(size), dequantised(size);
  on_backend<&experts_ref>(backend)(world.args(plain.data(), &scratch));
  Experts args = world.args(dequantised.data(), &scratch);
  args.routed = quantised.dequantised;
  on_backend<&experts_ref>(backend)(args);
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    for (const bool grouped : {false, true}) {
      ThreadPool pool(3);
      Guarded<float> on(size);
      args = world.args(on.data(), &scratch, &pool);
      args.columns = Sides<"moe.nvfp4_experts">::on;
      grouped ? on_side<"moe.grouped">(backend, args) : off_side<"moe.grouped">(backend, args);
      EXPECT_EQ(std::memcmp(on.data(), dequantised.data(), static_cast<std::size_t>(size) * sizeof(float)), 0)
          << static_cast<int>(isa) << grouped;
      EXPECT_TWIN("moe.nvfp4_experts", on, plain.values());
      RecordProperty("nmse", testing::PrintToString(nmse(on.values(), plain.values())));
    }
  }
  force_isa(before);
}
INSTANTIATE_TEST_SUITE_P(Shapes, ExpertsNvfp4Twin,
                         testing::Combine(testing::Values(Backend::ref, Backend::cpu),
                                          testing::Values(ExpertsShape{1, 20, 9, 4, 2}, ExpertsShape{13, 64, 32, 40, 6},
                                                          ExpertsShape{150, 75, 41, 5, 2})));

}  // namespace
}  // namespace plumb
