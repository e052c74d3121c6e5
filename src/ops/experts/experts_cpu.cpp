#include <algorithm>
#include <cmath>

#include "base/isa.h"
#include "base/math.h"
#include "ops/experts/expert_mlp.h"
#include "ops/experts_grouped/experts_grouped.h"
#include "ops/linear/dot_rows_cpu.h"

namespace plumb {
namespace {

constexpr std::int64_t kRowBlock = 32;     // rows of one expert that a task takes
constexpr std::int64_t kColumnBlock = 64;  // outputs that a task takes at most
constexpr std::int64_t kLeastColumns = 32;

[[gnu::always_inline]] inline void gated_body(float* gate, const float* up, std::size_t count, float limit) {
  for (std::size_t i = 0; i < count; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    const float u_low = up[i] < -limit ? -limit : up[i];
    const float u = u_low > limit ? limit : u_low;
    gate[i] = math::silu32(g) * u;
  }
}
void gated_baseline(float* gate, const float* up, std::size_t count, float limit) {
  gated_body(gate, up, count, limit);
}
PLUMB_TARGET_AVX2 void gated_avx2(float* gate, const float* up, std::size_t count, float limit) {
  gated_body(gate, up, count, limit);
}
PLUMB_TARGET_AVX512 void gated_avx512(float* gate, const float* up, std::size_t count, float limit) {
  gated_body(gate, up, count, limit);
}

// sum[i] = fma(weight, x[i], sum[i])
[[gnu::always_inline]] inline void add_weighted_body(float* sum, const float* x, float weight, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = std::fma(weight, x[i], sum[i]);
}
void add_weighted_baseline(float* sum, const float* x, float weight, std::int64_t count) {
  add_weighted_body(sum, x, weight, count);
}
PLUMB_TARGET_AVX2 void add_weighted_avx2(float* sum, const float* x, float weight, std::int64_t count) {
  add_weighted_body(sum, x, weight, count);
}
PLUMB_TARGET_AVX512 void add_weighted_avx512(float* sum, const float* x, float weight, std::int64_t count) {
  add_weighted_body(sum, x, weight, count);
}
void add_weighted(float* sum, const float* x, float weight, std::int64_t count) {
  switch (best_isa()) {
    case Isa::avx512:
      return add_weighted_avx512(sum, x, weight, count);
    case Isa::avx2:
      return add_weighted_avx2(sum, x, weight, count);
    case Isa::baseline:
      return add_weighted_baseline(sum, x, weight, count);
  }
}

// Rows of the batch that an expert works on: slots [begin, end) of scratch.rows. The shared expert works on all rows.
struct Group {
  const GatedMlp* mlp;
  std::int64_t begin, end;
  std::int64_t hidden;  // where its first gated product is in scratch.hidden
  bool shared;
};

class GroupedExperts {
 public:
  explicit GroupedExperts(const Experts& a) : a_(a), s_(*a.scratch), rows_(a.x.extent(0)), d_(a.x.extent(1)) {
    group_rows();
  }

  void run() {
    const std::int64_t threads = a_.executor == nullptr ? 1 : a_.executor->threads();
    plan_hidden(threads);
    each(static_cast<std::int64_t>(tasks_.size()),
         [this](std::int64_t i) { hidden_task(tasks_[static_cast<std::size_t>(i)]); });
    // A block of columns belongs to one task, which adds the experts in ascending order.
    const std::int64_t width = column_width(d_, threads), columns = (d_ + width - 1) / width;
    const std::int64_t parts =
        std::clamp((2 * threads + columns - 1) / columns, std::int64_t{1}, (rows_ + kRowBlock - 1) / kRowBlock);
    each(columns * parts, [&](std::int64_t i) {
      const std::int64_t column = i % columns * width, part = i / columns;
      down_task(column, std::min(width, d_ - column), rows_ * part / parts, rows_ * (part + 1) / parts);
    });
  }

 private:
  struct HiddenTask {
    const Group* group;
    std::int64_t begin, end;  // slots
    std::int64_t column, columns;
  };

  template <class Body>
  void each(std::int64_t count, Body&& body) {
    const auto run_range = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i);
    };
    if (a_.executor == nullptr)
      run_range(0, count);
    else
      a_.executor->parallel_for(count, run_range);
  }

  // Columns of a task: so few that every thread has some, and not so few that a register stays empty.
  static std::int64_t column_width(std::int64_t columns, std::int64_t threads) {
    const std::int64_t share = (columns + threads - 1) / threads;
    return std::clamp((share + 15) / 16 * 16, kLeastColumns, kColumnBlock);
  }

  // Slots sorted by expert, rows ascending inside; a row that named an expert twice comes twice.
  void group_rows() {
    const std::int64_t k = a_.experts.extent(1), experts = static_cast<std::int64_t>(a_.routed.size());
    s_.starts.assign(static_cast<std::size_t>(experts + 1), 0);
    for (const std::int32_t e : a_.experts.span()) {
      CHECK(e >= 0 && e < experts);
      ++s_.starts[static_cast<std::size_t>(e) + 1];
    }
    for (std::size_t e = 1; e < s_.starts.size(); ++e) s_.starts[e] += s_.starts[e - 1];
    std::vector<std::int64_t> next(s_.starts.begin(), s_.starts.end() - 1);
    s_.rows.resize(static_cast<std::size_t>(rows_ * k));
    s_.weights.resize(static_cast<std::size_t>(rows_ * k));
    for (std::int64_t t = 0; t < rows_; ++t)
      for (std::int64_t i = 0; i < k; ++i) {
        const auto slot = static_cast<std::size_t>(next[static_cast<std::size_t>(a_.experts(t, i))]++);
        s_.rows[slot] = t;
        s_.weights[slot] = a_.weights(t, i);
      }
    std::int64_t hidden = 0;
    const auto add = [&](const GatedMlp& mlp, std::int64_t begin, std::int64_t end, bool shared) {
      groups_.push_back({&mlp, begin, end, hidden, shared});
      hidden += (end - begin) * mlp.gate.extent(1);
    };
    for (std::size_t e = 0; e < a_.routed.size(); ++e)
      if (s_.starts[e] < s_.starts[e + 1]) add(a_.routed[e], s_.starts[e], s_.starts[e + 1], false);
    add(a_.shared, 0, rows_, true);
    s_.hidden.resize(static_cast<std::size_t>(hidden));
    s_.up.resize(static_cast<std::size_t>(hidden));
  }

  void plan_hidden(std::int64_t threads) {
    std::int64_t blocks = 0;
    for (const Group& group : groups_) blocks += (group.end - group.begin + kRowBlock - 1) / kRowBlock;
    for (const Group& group : groups_) {
      const std::int64_t inner = group.mlp->gate.extent(1);
      const std::int64_t width = blocks >= 4 * threads ? inner : column_width(inner, threads);
      for (std::int64_t begin = group.begin; begin < group.end; begin += kRowBlock)
        for (std::int64_t column = 0; column < inner; column += width)
          tasks_.push_back(
              {&group, begin, std::min(begin + kRowBlock, group.end), column, std::min(width, inner - column)});
    }
  }

  const std::int64_t* rows_of(const Group& group, std::int64_t slot) const {
    return group.shared ? nullptr : s_.rows.data() + slot;
  }

  WeightColumns columns_of(const Group& group, MlpMatrix matrix, std::int64_t begin, std::int64_t end,
                           std::vector<float>& made) const {
    const auto columns = group.shared ? &expert_columns_ref : a_.columns;
    return columns({group.mlp, matrix, begin, end, &made});
  }

  void hidden_task(const HiddenTask& task) {
    const Group& group = *task.group;
    const std::int64_t inner = group.mlp->gate.extent(1), rows = task.end - task.begin;
    const std::int64_t at = group.hidden + (task.begin - group.begin) * inner + task.column;
    float* const gate = s_.hidden.data() + at;
    float* const up = s_.up.data() + at;
    const float* const x = a_.x.data() + (group.shared ? task.begin * d_ : 0);
    std::vector<float> made;
    for (const bool is_gate : {true, false}) {
      const WeightColumns weight =
          columns_of(group, is_gate ? MlpMatrix::gate : MlpMatrix::up, task.column, task.column + task.columns, made);
      dot_rows_cpu({.x = x,
                    .x_stride = d_,
                    .w = weight.data,
                    .w_stride = weight.stride,
                    .rows = rows,
                    .in = d_,
                    .out = task.columns},
                   is_gate ? gate : up, inner, rows_of(group, task.begin));
    }
    const auto count = static_cast<std::size_t>(task.columns);
    for (std::int64_t r = 0; r < rows; ++r)
      gated_product_cpu({gate + r * inner, count}, {up + r * inner, count}, static_cast<float>(a_.limit));
  }

  // Columns [column, column + columns) of the output rows [first, last).
  void down_task(std::int64_t column, std::int64_t columns, std::int64_t first, std::int64_t last) {
    float down[kRowBlock * kColumnBlock];
    std::vector<float> made;
    for (std::int64_t t = first; t < last; ++t) std::fill_n(a_.out.row(t) + column, columns, 0.0f);
    for (const Group& group : groups_) {
      const std::int64_t inner = group.mlp->gate.extent(1);
      std::int64_t begin = first, end = last;
      if (group.shared) {  // the last group: the routed sums are complete
        const auto scale = static_cast<float>(a_.output_scale);
        for (std::int64_t t = first; t < last; ++t)
          for (std::int64_t c = column; c < column + columns; ++c) a_.out(t, c) *= scale;
      } else {
        const auto from = s_.rows.begin() + group.begin, to = s_.rows.begin() + group.end;
        begin = std::lower_bound(from, to, first) - s_.rows.begin();
        end = std::lower_bound(from, to, last) - s_.rows.begin();
      }
      if (begin == end) continue;
      const WeightColumns weight = columns_of(group, MlpMatrix::down, column, column + columns, made);
      for (std::int64_t slot = begin; slot < end; slot += kRowBlock) {
        const std::int64_t count = std::min(kRowBlock, end - slot);
        dot_rows_cpu({.x = s_.hidden.data() + group.hidden + (slot - group.begin) * inner,
                      .x_stride = inner,
                      .w = weight.data,
                      .w_stride = weight.stride,
                      .rows = count,
                      .in = inner,
                      .out = columns},
                     down, columns);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(slot + i);
          float* const out = a_.out.row(group.shared ? slot + i : s_.rows[at]) + column;
          add_weighted(out, down + i * columns, group.shared ? 1.0f : s_.weights[at], columns);
        }
      }
    }
  }

  const Experts& a_;
  ExpertsScratch& s_;
  const std::int64_t rows_, d_;
  std::vector<Group> groups_;
  std::vector<HiddenTask> tasks_;
};

}  // namespace

void gated_product_cpu(std::span<float> gate, std::span<const float> up, float limit) {
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

void experts_grouped_cpu(const Experts& a) {
  const std::int64_t rows = a.x.extent(0);
  CHECK(a.out.extents() == a.x.extents() && a.experts.extent(0) == rows && a.weights.extents() == a.experts.extents());
  if (rows > 0) GroupedExperts(a).run();
}

void experts_cpu(const Experts& a) { for_each_row_tile(a, &experts_grouped_cpu); }

}  // namespace plumb
