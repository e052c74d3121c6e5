#include <algorithm>

#include "base/isa.h"
#include "base/math.h"
#include "ops/experts/experts.h"
#include "ops/linear/linear.h"

namespace plumb {
namespace {

[[gnu::always_inline]] inline void gated_body(float* gate, const float* up, std::size_t count, double limit) {
  for (std::size_t i = 0; i < count; ++i) {
    const double g = gate[i], u = up[i];
    const double g_clamped = g > limit ? limit : g;
    const double u_low = u < -limit ? -limit : u;
    const double u_clamped = u_low > limit ? limit : u_low;
    gate[i] = static_cast<float>(math::silu(g_clamped) * u_clamped);
  }
}
void gated_baseline(float* gate, const float* up, std::size_t count, double limit) {
  gated_body(gate, up, count, limit);
}
PLUMB_TARGET_AVX2 void gated_avx2(float* gate, const float* up, std::size_t count, double limit) {
  gated_body(gate, up, count, limit);
}
PLUMB_TARGET_AVX512 void gated_avx512(float* gate, const float* up, std::size_t count, double limit) {
  gated_body(gate, up, count, limit);
}

// scratch.down = mlp(x) for `rows` rows.
void run_mlp(const GatedMlp& mlp, const float* x, std::int64_t rows, double limit, ExpertsScratch& s) {
  const std::int64_t d = mlp.gate.extent(0), inner = mlp.gate.extent(1);
  s.gate.resize(static_cast<std::size_t>(rows * inner));
  s.up.resize(static_cast<std::size_t>(rows * inner));
  s.down.resize(static_cast<std::size_t>(rows * d));
  const View<const float, 2> input(x, {rows, d});
  const View<float, 2> gate(s.gate.data(), {rows, inner}), up(s.up.data(), {rows, inner});
  linear_ref({.x = input, .weight = mlp.gate, .out = gate});
  linear_ref({.x = input, .weight = mlp.up, .out = up});
  gated_product(s.gate, s.up, limit);
  linear_ref({.x = gate, .weight = mlp.down, .out = View<float, 2>(s.down.data(), {rows, d})});
}

// Gathers the rows that chose `expert`, with their weights; a row that named it twice comes twice.
void gather_rows(const Experts& a, std::int32_t expert) {
  ExpertsScratch& s = *a.scratch;
  s.rows.clear();
  s.weights.clear();
  s.x.clear();
  for (std::int64_t t = 0; t < a.x.extent(0); ++t)
    for (std::int64_t i = 0; i < a.experts.extent(1); ++i)
      if (a.experts(t, i) == expert) {
        s.rows.push_back(t);
        s.weights.push_back(a.weights(t, i));
        s.x.insert(s.x.end(), a.x.row(t), a.x.row(t) + a.x.extent(1));
      }
}

// The rows of `a`, on this thread.
void compute_rows(const Experts& a) {
  const std::int64_t rows = a.x.extent(0), d = a.x.extent(1);
  ExpertsScratch& s = *a.scratch;
  s.sums.assign(static_cast<std::size_t>(rows * d), 0.0);
  for (std::size_t e = 0; e < a.routed.size(); ++e) {
    gather_rows(a, static_cast<std::int32_t>(e));
    if (s.rows.empty()) continue;
    run_mlp(a.routed[e], s.x.data(), static_cast<std::int64_t>(s.rows.size()), a.limit, s);
    for (std::size_t i = 0; i < s.rows.size(); ++i) {
      double* sum = s.sums.data() + s.rows[i] * d;
      const float* down = s.down.data() + static_cast<std::int64_t>(i) * d;
      const double weight = s.weights[i];
      for (std::int64_t c = 0; c < d; ++c) sum[c] += weight * down[c];
    }
  }
  run_mlp(a.shared, a.x.data(), rows, a.limit, s);
  for (std::int64_t i = 0; i < rows * d; ++i)
    a.out.data()[i] =
        static_cast<float>(s.sums[static_cast<std::size_t>(i)] * a.output_scale + s.down[static_cast<std::size_t>(i)]);
}

}  // namespace

void gated_product(std::span<float> gate, std::span<const float> up, double limit) {
  CHECK(gate.size() == up.size());
  switch (best_isa()) {
    case Isa::avx512:
      return gated_avx512(gate.data(), up.data(), gate.size(), limit);
    case Isa::avx2:
      return gated_avx2(gate.data(), up.data(), gate.size(), limit);
    case Isa::baseline:
      return gated_baseline(gate.data(), up.data(), gate.size(), limit);
  }
}

void experts_ref(const Experts& a) {
  constexpr std::int64_t kRowTile = 8;
  const std::int64_t rows = a.x.extent(0);
  CHECK(a.out.extents() == a.x.extents() && a.experts.extent(0) == rows && a.weights.extents() == a.experts.extents());
  if (a.executor == nullptr) return compute_rows(a);
  a.executor->parallel_for((rows + kRowTile - 1) / kRowTile, [&](std::int64_t begin, std::int64_t end) {
    ExpertsScratch scratch;
    Experts part = a;
    const std::int64_t first = begin * kRowTile, last = std::min(end * kRowTile, rows);
    part.x = a.x.rows(first, last);
    part.experts = a.experts.rows(first, last);
    part.weights = a.weights.rows(first, last);
    part.out = a.out.rows(first, last);
    part.scratch = &scratch;
    compute_rows(part);
  });
}

}  // namespace plumb
