#include <numeric>

#include "ops/select_topk/select_topk.h"

namespace plumb {

void select_topk_ref(const SelectTopk& a) {
  CHECK(a.scores.extent(0) == a.selected.extent(0));
  const std::int64_t k = a.selected.extent(1);
  std::vector<Candidate> rows;
  for (std::int64_t t = 0; t < a.scores.extent(0); ++t) {
    const std::int64_t visible = (a.first_position + t + 1) / a.rate;
    CHECK(visible <= a.scores.extent(1));
    rows.clear();
    for (std::int64_t n = 0; n < visible; ++n) {
      const float score = a.scores(t, n);
      rows.push_back(
          {std::isnan(score) ? -std::numeric_limits<float>::infinity() : score, static_cast<std::int32_t>(n)});
    }
    const std::int64_t chosen = std::min(k, visible);
    if (chosen < visible) std::nth_element(rows.begin(), rows.begin() + chosen, rows.end(), ranks_before);
    std::int32_t* out = a.selected.row(t);
    std::fill_n(out, k - chosen, -1);
    for (std::int64_t i = 0; i < chosen; ++i) out[k - chosen + i] = rows[static_cast<std::size_t>(i)].row;
    std::sort(out + k - chosen, out + k);
  }
}

}  // namespace plumb
