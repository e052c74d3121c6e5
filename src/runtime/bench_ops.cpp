#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <set>

#include "base/rng.h"
#include "engine/state.h"
#include "ops/experts_grouped/experts_grouped.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/hyper_connection/hyper_connection.h"
#include "ops/indexer/indexer.h"
#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/sparse_attention/sparse_attention.h"
#include "runtime/bench_machine.h"
#include "weights/model.h"

namespace plumb {
namespace {

constexpr std::int64_t kCacheBytes = 256 << 10;  // fits the second-level cache of any processor we know
constexpr double kLeastSeconds = 0.01;           // of one run of calls

// Rows of the pages of one sequence, all of them filled.
struct Pages {
  Pages(Rng& rng, std::int64_t rows, std::int64_t per_page, std::int64_t row_width)
      : rows_per_page(per_page), width(row_width) {
    for (std::int64_t n = 0; n < rows; n += per_page) {
      memory.emplace_back(static_cast<std::size_t>(per_page * width));
      for (float& value : memory.back()) value = static_cast<float>(rng.normal());
    }
    for (std::vector<float>& page : memory) pages.push_back(page.data());
  }
  PagedRows view() const { return {pages, 0, rows_per_page, width}; }

  std::int64_t rows_per_page, width;
  std::vector<std::vector<float>> memory;
  std::vector<float*> pages;
};

class OpsBench {
 public:
  OpsBench(const Model& model, const BenchOptions& options, const BenchMachine& machine)
      : c_(model.config), w_(model.weights), options_(options), machine_(machine), rows_(options.batch) {}

  std::vector<OpResult> run() {
    const std::int64_t d = c_.hidden_size;
    const auto layer = [&](AttentionKind kind) -> const LayerWeights* {
      for (std::size_t i = 0; i < c_.layers.size(); ++i)
        if (c_.layers[i].attention == kind) return &w_.layers[i];
      return nullptr;
    };
    const LayerWeights& any = w_.layers.front();
    for (const auto& [name, weight] :
         {std::pair{"q_a", &any.attention.q_a}, std::pair{"q_b", &any.attention.q_b},
          std::pair{"o_b", &any.attention.o_b}, std::pair{"router", &any.moe.router}, std::pair{"head", &w_.head}})
      linear(name, weight->view());
    grouped_linear(any.attention.o_a.view());
    experts(any.moe);
    hyper_connection(any.attention_hc);
    norm_and_rope(d);
    if (layer(AttentionKind::compressed_sparse) != nullptr) {
      indexer();
      attention(true);
    } else {
      attention(false);
    }
    return std::move(results_);
  }

 private:
  template <auto* Reference>
  auto* op() const {
    return on_backend<Reference>(options_.backend);
  }

  std::vector<float> random(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(rng_.normal());
    return values;
  }

  // Times body(), which does `operations` and touches `bytes`.
  void add(std::string name, double operations, double bytes, const std::function<void()>& body) {
    using Clock = std::chrono::steady_clock;
    body();
    double best = std::numeric_limits<double>::infinity();
    std::int64_t calls = 1;
    for (int run = 0; run < options_.repeats; ++run) {
      double seconds = 0;
      while (true) {
        const auto start = Clock::now();
        for (std::int64_t i = 0; i < calls; ++i) body();
        seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (seconds >= kLeastSeconds) break;
        calls *= 2;
      }
      best = std::min(best, seconds / static_cast<double>(calls));
    }
    const double limit = std::max(operations / machine_.operations_per_second, bytes / machine_.bytes_per_second);
    results_.push_back({std::move(name), best, operations, bytes, limit});
  }

  void linear(const std::string& name, View<const float, 2> weight) {
    const std::int64_t in = weight.extent(0), out = weight.extent(1);
    const std::vector<float> x = random(rows_ * in);
    std::vector<float> y(static_cast<std::size_t>(rows_ * out));
    const auto products = static_cast<double>(rows_ * in * out);
    add(fmt::format("linear {} {}x{}", name, in, out), 2 * products, bytes(in * out + rows_ * (in + out)),
        [&] { op<&linear_ref>()({.x = {x.data(), {rows_, in}}, .weight = weight, .out = {y.data(), {rows_, out}}}); });
  }

  void grouped_linear(View<const float, 3> weight) {
    const std::int64_t groups = weight.extent(0), in = weight.extent(1), out = weight.extent(2);
    const std::vector<float> x = random(rows_ * groups * in);
    std::vector<float> y(static_cast<std::size_t>(rows_ * groups * out));
    add(fmt::format("grouped_linear {}x{}x{}", groups, in, out), 2 * static_cast<double>(rows_ * groups * in * out),
        bytes(groups * in * out + rows_ * groups * (in + out)), [&] {
          op<&grouped_linear_ref>()(
              {.x = {x.data(), {rows_, groups, in}}, .weight = weight, .out = {y.data(), {rows_, groups, out}}});
        });
  }

  void experts(const MoeWeights& moe) {
    const std::int64_t d = c_.hidden_size, k = c_.experts_per_token;
    const std::vector<float> x = random(rows_ * d), weights = random(rows_ * k);
    std::vector<float> y(static_cast<std::size_t>(rows_ * d));
    std::vector<std::int32_t> chosen;
    for (std::int64_t i = 0; i < rows_ * k; ++i)
      chosen.push_back(static_cast<std::int32_t>(rng_.below(static_cast<std::uint64_t>(c_.experts))));
    std::vector<GatedMlp> routed;
    for (const MlpWeights& e : moe.experts) routed.push_back({e.gate.view(), e.up.view(), e.down.view()});
    ExpertsScratch scratch;
    const Experts args{.x = {x.data(), {rows_, d}},
                       .experts = {chosen.data(), {rows_, k}},
                       .weights = {weights.data(), {rows_, k}},
                       .routed = routed,
                       .shared = {moe.shared.gate.view(), moe.shared.up.view(), moe.shared.down.view()},
                       .limit = c_.swiglu_limit,
                       .output_scale = 1.0,
                       .out = {y.data(), {rows_, d}},
                       .scratch = &scratch};
    const double one = 3 * static_cast<double>(d * c_.moe_intermediate);
    const double shared = 3 * static_cast<double>(d * moe.shared.gate.view().extent(1));
    const auto touched = static_cast<double>(std::set<std::int32_t>(chosen.begin(), chosen.end()).size());
    const double operations = 2 * static_cast<double>(rows_) * (one * static_cast<double>(k) + shared);
    const double read = 4 * (touched * one + shared) + bytes(2 * rows_ * d);
    add(fmt::format("experts {} of {}, {}x{}", k, c_.experts, d, c_.moe_intermediate), operations, read,
        [&] { op<&experts_ref>()(args); });
    add("experts grouped", operations, read, [&] { op<&experts_grouped_ref>()(args); });
  }

  void hyper_connection(const HyperConnection& w) {
    const std::int64_t n = c_.hc_mult, d = c_.hidden_size, mixes = n * (2 + n);
    std::vector<float> streams = random(rows_ * n * d);
    const std::vector<float> y = random(rows_ * d);
    std::vector<float> post(static_cast<std::size_t>(rows_ * n)), comb(static_cast<std::size_t>(rows_ * n * n));
    std::vector<float> collapsed(static_cast<std::size_t>(rows_ * d));
    const View<float, 3> view(streams.data(), {rows_, n, d});
    add("hc_pre", 2 * static_cast<double>(rows_ * n * d * (mixes + 2)), bytes(n * d * mixes + rows_ * (n + 1) * d),
        [&] {
          op<&hc_pre_ref>()({.streams = view,
                             .fn = w.fn.view(),
                             .base = w.base.view(),
                             .scale = w.scale.view(),
                             .eps = c_.rms_norm_eps,
                             .hc_eps = c_.hc_eps,
                             .iters = c_.hc_sinkhorn_iters,
                             .post = {post.data(), {rows_, n}},
                             .comb = {comb.data(), {rows_, n, n}},
                             .collapsed = {collapsed.data(), {rows_, d}}});
        });
    add("hc_post", 2 * static_cast<double>(rows_ * n * (n + 1) * d), bytes(rows_ * (2 * n + 1) * d), [&] {
      op<&hc_post_ref>()({.y = {y.data(), {rows_, d}},
                          .post = {post.data(), {rows_, n}},
                          .comb = {comb.data(), {rows_, n, n}},
                          .streams = view});
    });
  }

  void norm_and_rope(std::int64_t d) {
    const std::int64_t heads = c_.heads, dim = c_.head_dim, half = c_.rope_dim / 2;
    const std::vector<float> x = random(rows_ * d);
    std::vector<float> y(static_cast<std::size_t>(rows_ * d)), q = random(rows_ * heads * dim);
    std::vector<double> table(static_cast<std::size_t>(rows_ * half * 2), 0.7);
    add(fmt::format("rms_norm {}", d), 4 * static_cast<double>(rows_ * d), bytes(2 * rows_ * d), [&] {
      op<&rms_norm_ref>()({.x = {x.data(), {rows_, d}}, .weight = {}, .eps = 1e-6, .out = {y.data(), {rows_, d}}});
    });
    add(fmt::format("rope {}x{}", heads, c_.rope_dim), 3 * static_cast<double>(rows_ * heads * c_.rope_dim),
        bytes(2 * rows_ * heads * c_.rope_dim) + 8 * static_cast<double>(rows_ * half * 2), [&] {
          op<&rope_ref>()(
              {.x = {q.data(), {rows_, heads, dim}}, .table = {table.data(), {rows_, half, 2}}, .inverse = false});
        });
  }

  // Queries at the end of `tokens` positions.
  void indexer() {
    const std::int64_t heads = c_.index_heads, dim = c_.index_head_dim, k = c_.index_topk, rate = rate_of_sparse();
    const std::int64_t first = std::max<std::int64_t>(0, options_.tokens - rows_), visible = (first + rows_) / rate;
    const Pages keys(rng_, visible, kPageTokens / rate, dim);
    const std::vector<float> q = random(rows_ * heads * dim), weights = random(rows_ * heads);
    std::vector<float> scores(static_cast<std::size_t>(rows_ * visible));
    std::vector<std::int32_t> selected(static_cast<std::size_t>(rows_ * k));
    add(fmt::format("indexer {} keys, top {}", visible, k), 2 * static_cast<double>(rows_ * visible * heads * dim),
        bytes(visible * dim + rows_ * heads * dim), [&] {
          op<&indexer_ref>()({.q = {q.data(), {rows_, heads, dim}},
                              .head_weights = {weights.data(), {rows_, heads}},
                              .keys = keys.view(),
                              .first_position = first,
                              .rate = rate,
                              .scores = {scores.data(), {rows_, visible}},
                              .seen = nullptr,
                              .selected = {selected.data(), {rows_, k}}});
        });
  }

  void attention(bool sparse) {
    const std::int64_t heads = c_.heads, dim = c_.head_dim, rate = sparse ? rate_of_sparse() : 0;
    const std::int64_t first = std::max<std::int64_t>(0, options_.tokens - rows_);
    const std::int64_t visible = sparse ? (first + 1) / rate : 0, k = std::min(visible, c_.index_topk);
    const Pages window(rng_, first + rows_, kPageTokens, dim),
        rows(rng_, visible, sparse ? kPageTokens / rate : 1, dim);
    const std::vector<float> q = random(rows_ * heads * dim), sinks = random(heads);
    std::vector<float> out(static_cast<std::size_t>(rows_ * heads * dim));
    std::vector<std::int32_t> selected;
    for (std::int64_t t = 0; t < rows_; ++t)
      for (std::int64_t i = 0; i < k; ++i) selected.push_back(static_cast<std::int32_t>(i * visible / k));
    AttentionScratch scratch;
    const std::int64_t seen = std::min(c_.window, first + 1) + k;
    add(fmt::format("attention {} keys, {}x{}", seen, heads, dim), 4 * static_cast<double>(rows_ * seen * heads * dim),
        bytes((seen + rows_) * dim + 2 * rows_ * heads * dim), [&] {
          op<&sparse_attention_ref>()({.q = {q.data(), {rows_, heads, dim}},
                                       .scale = 0.1,
                                       .first_position = first,
                                       .window_rows = window.view(),
                                       .window = c_.window,
                                       .rows = sparse ? rows.view() : PagedRows(),
                                       .rate = rate,
                                       .selected = sparse ? View<const std::int32_t, 2>(selected.data(), {rows_, k})
                                                          : View<const std::int32_t, 2>(),
                                       .sinks = {sinks.data(), {heads}},
                                       .out = {out.data(), {rows_, heads, dim}},
                                       .scratch = &scratch});
        });
  }

  std::int64_t rate_of_sparse() const {
    for (const LayerConfig& layer : c_.layers)
      if (layer.attention == AttentionKind::compressed_sparse) return layer.compress_rate;
    return 1;
  }

  static double bytes(std::int64_t floats) { return 4 * static_cast<double>(floats); }

  const ModelConfig& c_;
  const ModelWeights& w_;
  const BenchOptions& options_;
  const BenchMachine& machine_;
  const std::int64_t rows_;
  Rng rng_{2};
  std::vector<OpResult> results_;
};

}  // namespace

Result<OpsResult> bench_ops(const BenchOptions& options) {
  if (options.tokens < 1 || options.batch < 1 || options.repeats < 1)
    return error("bench: --tokens, --batch and --repeats must be at least 1");
  if (options.threads > 1) return error("bench op: one op runs on one thread; leave --threads out");
  if (options.settings != Settings()) return error("bench op: ops are timed with every switch off; leave --set out");
  const auto model = load_model(options.model);
  if (!model) return tl::unexpected(model.error());
  if (options.tokens > model->config.max_positions)
    return error("bench: {} positions; the model has {}", options.tokens, model->config.max_positions);
  OpsResult result{.rows = options.batch, .machine = measure_machine(1, kCacheBytes), .ops = {}};
  result.ops = OpsBench(*model, options, result.machine).run();
  return result;
}

}  // namespace plumb
