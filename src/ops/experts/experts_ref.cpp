#include <algorithm>

#include "base/isa.h"
#include "base/math.h"
#include "ops/experts/expert_mlp.h"
#include "ops/linear/dot_rows.h"

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
    run_mlp_ref({&a.routed[e], a.columns, s.x.data(), static_cast<std::int64_t>(s.rows.size()), a.limit, &s});
    for (std::size_t i = 0; i < s.rows.size(); ++i) {
      double* sum = s.sums.data() + s.rows[i] * d;
      const float* down = s.down.data() + static_cast<std::int64_t>(i) * d;
      const double weight = s.weights[i];
      for (std::int64_t c = 0; c < d; ++c) sum[c] += weight * down[c];
    }
  }
  run_mlp_ref({&a.shared, &expert_columns_ref, a.x.data(), rows, a.limit, &s});
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

WeightColumns expert_columns_ref(const ExpertColumns& a) {
  const View<const float, 2>& weight = a.matrix == MlpMatrix::gate ? a.mlp->gate
                                       : a.matrix == MlpMatrix::up ? a.mlp->up
                                                                   : a.mlp->down;
  CHECK(0 <= a.begin && a.begin <= a.end && a.end <= weight.extent(1));
  return {weight.data() + a.begin, weight.extent(1)};
}

void run_mlp_ref(const MlpRun& a) {
  const std::int64_t d = a.mlp->gate.extent(0), inner = a.mlp->gate.extent(1);
  ExpertsScratch& s = *a.scratch;
  s.gate.resize(static_cast<std::size_t>(a.rows * inner));
  s.up.resize(static_cast<std::size_t>(a.rows * inner));
  s.down.resize(static_cast<std::size_t>(a.rows * d));
  const auto product = [&](MlpMatrix matrix, const float* x, std::int64_t in, std::int64_t out, float* to) {
    const WeightColumns w = a.columns({a.mlp, matrix, 0, out, &s.columns});
    dot_rows({.x = x, .x_stride = in, .w = w.data, .w_stride = w.stride, .rows = a.rows, .in = in, .out = out}, to,
             out);
  };
  product(MlpMatrix::gate, a.x, d, inner, s.gate.data());
  product(MlpMatrix::up, a.x, d, inner, s.up.data());
  gated_product(s.gate, s.up, a.limit);
  product(MlpMatrix::down, s.gate.data(), inner, d, s.down.data());
}

void for_each_row_tile(const Experts& a, void (*run)(const Experts& tile)) {
  constexpr std::int64_t kGrain = 8;  // rows that are not worth a thread of their own
  const std::int64_t rows = a.x.extent(0);
  CHECK(a.out.extents() == a.x.extents() && a.experts.extent(0) == rows && a.weights.extents() == a.experts.extents());
  const auto run_rows = [&](std::int64_t begin, std::int64_t end, ExpertsScratch* scratch) {
    for (std::int64_t first = begin; first < end; first += kExpertRowTile) {
      const std::int64_t last = std::min(first + kExpertRowTile, end);
      Experts tile = a;
      tile.x = a.x.rows(first, last);
      tile.experts = a.experts.rows(first, last);
      tile.weights = a.weights.rows(first, last);
      tile.out = a.out.rows(first, last);
      tile.scratch = scratch;
      tile.executor = nullptr;
      run(tile);
    }
  };
  if (a.executor == nullptr) return run_rows(0, rows, a.scratch);
  a.executor->parallel_for((rows + kGrain - 1) / kGrain, [&](std::int64_t begin, std::int64_t end) {
    ExpertsScratch scratch;
    run_rows(begin * kGrain, std::min(end * kGrain, rows), &scratch);
  });
}

void experts_ref(const Experts& a) { for_each_row_tile(a, &compute_rows); }

}  // namespace plumb
