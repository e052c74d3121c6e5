#include "ops/linear_fp8/linear_fp8.h"

#include <limits>
#include <tuple>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "ops/twin.h"

namespace plumb {
namespace {

struct Shape {
  std::int64_t rows, in, out;
};
class LinearFp8Twin : public testing::TestWithParam<std::tuple<Backend, Shape>> {};

TEST_P(LinearFp8Twin, IsTheReferenceOnRoundedInputsAndWithinBudgetOfF32) {
  const auto& [backend, shape] = GetParam();
  const auto [rows, in, out] = shape;
  Rng rng{211};
  const std::vector<float> x = random_floats(rng, rows * in), w = random_floats(rng, in * out, 0.05);
  const Fp8Matrix weight = quantise_fp8({w.data(), {in, out}});
  std::vector<float> x_rounded(x.size()), w_rounded(w.size());
  round_activations_fp8({x.data(), {rows, in}}, x_rounded.data());
  dequantise_fp8(weight, 0, out, w_rounded.data());
  const auto ports = [&](const std::vector<float>& from, const std::vector<float>& by, Guarded<float>& to) {
    return Linear{.x = {from.data(), {rows, in}}, .weight = {by.data(), {in, out}}, .out = {to.data(), {rows, out}}};
  };
  Guarded<float> plain(rows * out), composed(rows * out);
  off_side<"linear.fp8">(backend, LinearFp8{ports(x, w, plain), &weight});
  on_backend<&linear_ref>(backend)(ports(x_rounded, w_rounded, composed));
  // The on side must not read the f32 weights.
  const std::vector<float> poison(w.size(), std::numeric_limits<float>::quiet_NaN());
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    for (const std::int64_t width : {out, std::int64_t{37}}) {
      Guarded<float> on(rows * out);
      for (std::int64_t begin = 0; begin < out; begin += width) {
        LinearFp8 args{ports(x, poison, on), &weight};
        args.plain.outputs = {begin, std::min(begin + width, out)};
        on_side<"linear.fp8">(backend, args);
      }
      EXPECT_EQ(std::memcmp(on.data(), composed.data(), static_cast<std::size_t>(rows * out) * sizeof(float)), 0)
          << static_cast<int>(isa) << ' ' << width;
      EXPECT_TWIN("linear.fp8", on, plain.values());
      RecordProperty("nmse", testing::PrintToString(nmse(on.values(), plain.values())));
    }
  }
  force_isa(before);
}
INSTANTIATE_TEST_SUITE_P(Shapes, LinearFp8Twin,
                         testing::Combine(testing::Values(Backend::ref, Backend::cpu),
                                          testing::Values(Shape{1, 256, 128}, Shape{13, 300, 70}, Shape{5, 128, 512},
                                                          Shape{9, 64, 200}, Shape{0, 10, 10})));

}  // namespace
}  // namespace plumb
