#include <algorithm>

#include "ops/experts/expert_mlp.h"
#include "ops/experts_grouped/experts_grouped.h"

namespace plumb {
namespace {

// A row's use of an expert; `slot` is where the expert's output for it is kept.
struct Choice {
  std::int64_t row;
  std::int64_t slot;
  float weight;
};

std::vector<std::vector<Choice>> gather_by_expert(const Experts& a) {
  std::vector<std::vector<Choice>> chosen(a.routed.size());
  const std::int64_t k = a.experts.extent(1);
  for (std::int64_t t = 0; t < a.experts.extent(0); ++t)
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int32_t e = a.experts(t, i);
      CHECK(e >= 0 && static_cast<std::size_t>(e) < chosen.size());
      chosen[static_cast<std::size_t>(e)].push_back({t, t * k + i, a.weights(t, i)});
    }
  return chosen;
}

template <class Body>
void each(Executor* executor, std::int64_t count, Body&& body) {
  if (executor == nullptr)
    body(0, count);
  else
    executor->parallel_for(count, body);
}

// outputs [rows * k, d]: slot by slot, the MLP of the chosen expert.
void run_experts(const Experts& a, const std::vector<std::vector<Choice>>& chosen, std::vector<float>& outputs) {
  const std::int64_t d = a.x.extent(1);
  each(a.executor, static_cast<std::int64_t>(chosen.size()), [&](std::int64_t begin, std::int64_t end) {
    ExpertsScratch scratch;
    for (auto e = static_cast<std::size_t>(begin); e < static_cast<std::size_t>(end); ++e) {
      if (chosen[e].empty()) continue;
      scratch.x.clear();
      for (const Choice& choice : chosen[e])
        scratch.x.insert(scratch.x.end(), a.x.row(choice.row), a.x.row(choice.row) + d);
      run_mlp_ref(
          {&a.routed[e], a.columns, scratch.x.data(), static_cast<std::int64_t>(chosen[e].size()), a.limit, &scratch});
      for (std::size_t i = 0; i < chosen[e].size(); ++i)
        std::copy_n(scratch.down.data() + static_cast<std::int64_t>(i) * d, d, outputs.data() + chosen[e][i].slot * d);
    }
  });
}

// out of rows [begin, end): their experts in ascending id, then the shared expert.
void sum_rows(const Experts& a, const std::vector<std::vector<Choice>>& chosen, const std::vector<float>& outputs,
              std::int64_t begin, std::int64_t end) {
  const std::int64_t d = a.x.extent(1);
  std::vector<double> sums(static_cast<std::size_t>((end - begin) * d), 0.0);
  for (const std::vector<Choice>& rows : chosen)
    for (const Choice& choice : rows) {
      if (choice.row < begin || choice.row >= end) continue;
      double* sum = sums.data() + (choice.row - begin) * d;
      const float* output = outputs.data() + choice.slot * d;
      const double weight = choice.weight;
      for (std::int64_t c = 0; c < d; ++c) sum[c] += weight * output[c];
    }
  ExpertsScratch scratch;
  run_mlp_ref({&a.shared, &expert_columns_ref, a.x.row(begin), end - begin, a.limit, &scratch});
  for (std::int64_t i = 0; i < (end - begin) * d; ++i)
    a.out.row(begin)[i] = static_cast<float>(sums[static_cast<std::size_t>(i)] * a.output_scale +
                                             scratch.down[static_cast<std::size_t>(i)]);
}

}  // namespace

void experts_grouped_ref(const Experts& a) {
  constexpr std::int64_t kGrain = 8;
  const std::int64_t rows = a.x.extent(0);
  CHECK(a.out.extents() == a.x.extents() && a.experts.extent(0) == rows && a.weights.extents() == a.experts.extents());
  const std::vector<std::vector<Choice>> chosen = gather_by_expert(a);
  std::vector<float> outputs(static_cast<std::size_t>(rows * a.experts.extent(1) * a.x.extent(1)));
  run_experts(a, chosen, outputs);
  each(a.executor, (rows + kGrain - 1) / kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (begin < end) sum_rows(a, chosen, outputs, begin * kGrain, std::min(end * kGrain, rows));
  });
}

}  // namespace plumb
