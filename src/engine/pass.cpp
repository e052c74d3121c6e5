#include "engine/pass.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/pass_rows.h"
#include "ops/embed/embed.h"
#include "ops/head/head.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/rope_stored/rope_stored.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

GatedMlp mlp_view(const MlpWeights& weights) { return {weights.gate.view(), weights.up.view(), weights.down.view()}; }

std::vector<double> frequencies(const ModelConfig& config, const RopeProfile& profile) {
  return rope_frequencies({.dim = config.rope_dim,
                           .theta = profile.theta,
                           .factor = profile.factor,
                           .original_max_positions = profile.original_max_positions,
                           .beta_fast = profile.beta_fast,
                           .beta_slow = profile.beta_slow});
}

Projection rounded_to_bf16(const Projection& weight) {
  Projection rounded(weight.view().extents());
  const auto from = weight.view().span();
  const auto to = rounded.mutable_view().span();
  std::transform(from.begin(), from.end(), to.begin(), round_to_bf16);
  return rounded;
}

// The sides of mhc.bf16_mix as hc_pre takes them.
template <Backend On>
auto* mix_side(bool bf16) {
  return bf16 ? +[](const HcMix& a) { on_side<"mhc.bf16_mix">(On, a); }
              : +[](const HcMix& a) { off_side<"mhc.bf16_mix">(On, a); };
}

std::vector<double> all_angles(const ModelConfig& config, std::span<const double> frequencies) {
  const std::int64_t half = config.rope_dim / 2;
  std::vector<double> angles(static_cast<std::size_t>(config.max_positions * half * 2));
  rope_table_ref(
      {.first = 0, .step = 1, .frequencies = frequencies, .table = {angles.data(), {config.max_positions, half, 2}}});
  return angles;
}

}  // namespace

Prepared::Prepared(const Model& model, const Settings& launch)
    : window_frequencies(frequencies(model.config, model.config.window_rope)),
      compressed_frequencies(frequencies(model.config, model.config.compressed_rope)) {
  for (const LayerWeights& layer : model.weights.layers) {
    std::vector<GatedMlp> experts;
    for (const MlpWeights& expert : layer.moe.experts) experts.push_back(mlp_view(expert));
    routed.push_back(std::move(experts));
    shared.push_back(mlp_view(layer.moe.shared));
    fn_bf16.push_back({rounded_to_bf16(layer.attention_hc.fn), rounded_to_bf16(layer.moe_hc.fn)});
  }
  quantise(model, launch);
  if (launch.on(switch_index("rope.table"))) {
    window_angles = all_angles(model.config, window_frequencies);
    compressed_angles = all_angles(model.config, compressed_frequencies);
  }
}

void Prepared::quantise(const Model& model, const Settings& launch) {
  const std::size_t layers = model.weights.layers.size();
  fp8.resize(layers);
  nvfp4.resize(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const AttentionWeights& attention = model.weights.layers[i].attention;
    if (launch.on(switch_index("linear.fp8"), static_cast<int>(i))) {
      fp8[i] = {quantise_fp8(attention.q_a.view()),
                quantise_fp8(attention.q_b.view()),
                quantise_fp8(attention.kv.view()),
                quantise_fp8(attention.o_b.view()),
                {}};
      if (!attention.indexer.q_b.empty()) fp8[i].index_q_b = quantise_fp8(attention.indexer.q_b.view());
    }
    if (!launch.on(switch_index("moe.nvfp4_experts"), static_cast<int>(i))) continue;
    nvfp4[i].reserve(routed[i].size());  // the views point into it
    for (GatedMlp& expert : routed[i]) {
      nvfp4[i].push_back(quantise_mlp_nvfp4(expert));
      expert.nvfp4 = &nvfp4[i].back();
    }
  }
}

void RowTensor::resize(std::int64_t rows, std::int64_t width) {
  rows_ = rows;
  width_ = width;
  const auto size = static_cast<std::size_t>(rows * width);
  if (data_.size() < size) data_.resize(size);
}

Pass::Pass(const Model& model, const Prepared& prepared, const StateLayout& layout, Executor& executor, Backend backend)
    : config_(model.config),
      weights_(model.weights),
      prepared_(prepared),
      layout_(layout),
      executor_(executor),
      backend_(backend) {}

void Pass::take(const Batch& batch) {
  settings_ = *batch.settings;
  sequences_.clear();
  tokens_.clear();
  rows_ = 0;
  observed_ = false;
  for (const BatchSequence& in : batch.sequences) {
    const auto rows = static_cast<std::int64_t>(in.tokens.size());
    const std::int64_t length = in.state->length;
    CHECK(rows > 0 && length >= 0 && static_cast<std::int64_t>(in.state->open.size()) == layout_.open_floats());
    const auto pages = static_cast<std::size_t>((length + rows + kPageTokens - 1) / kPageTokens);
    CHECK(in.state->pages.size() >= pages && in.state->window_pages.size() >= pages);
    for (const OpenSnapshot& snapshot : in.snapshots) {
      CHECK(length < snapshot.length && snapshot.length <= length + rows);
      *snapshot.open = in.state->open;
    }
    sequences_.push_back({in, rows_, rows, length});
    rows_ += rows;
    observed_ |= in.observer != nullptr;
    tokens_.insert(tokens_.end(), in.tokens.begin(), in.tokens.end());
  }
}

void Pass::run(const Batch& batch, View<float, 2> logits) {
  take(batch);
  if (rows_ == 0) return;
  fill_table(prepared_.window_frequencies, prepared_.window_angles, window_table_);
  fill_table(prepared_.compressed_frequencies, prepared_.compressed_angles, compressed_table_);
  embed();
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) run_layer(layer);
  head(logits);
  for (const Sequence& sequence : sequences_) sequence.in.state->length += sequence.rows;
}

void Pass::fill_table(std::span<const double> frequencies, const std::vector<double>& angles,
                      std::vector<double>& table) {
  table.resize(static_cast<std::size_t>(rows_ * config_.rope_dim));
  each_part(rows_, false, [&](const Part& part) {
    fill_angles(frequencies, angles, part.first_position(), 1, part.end - part.begin,
                table.data() + part.begin * config_.rope_dim);
  });
}

void Pass::fill_angles(std::span<const double> frequencies, const std::vector<double>& angles, std::int64_t first,
                       std::int64_t step, std::int64_t rows, double* to) {
  const std::int64_t half = config_.rope_dim / 2;
  const std::int64_t stored = angles.empty() ? 0 : config_.max_positions;
  chosen_side<"rope.table">(settings_, RopeTable{.first = first,
                                                 .step = step,
                                                 .frequencies = frequencies,
                                                 .table = {to, {rows, half, 2}},
                                                 .stored = {angles.data(), {stored, half, 2}}});
}

void Pass::embed() {
  embedded_.resize(rows_, config_.hidden_size);
  each_rows([&](std::int64_t begin, std::int64_t end) {
    op<&embed_ref>()(
        {.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
         .table = weights_.embedding.view(),
         .out = embedded_.view(begin, end)});
  });
  show(-1, "embed", embedded_, {config_.hidden_size});
  streams_.resize(rows_, config_.hc_mult * config_.hidden_size);
  each_rows([&](std::int64_t begin, std::int64_t end) {
    op<&expand_streams_ref>()({.x = embedded_.view(begin, end), .streams = streams_.view(begin, end, config_.hc_mult)});
  });
}

void Pass::run_layer(int layer) {
  const LayerWeights& weights = layer_weights(layer);
  const bool sliding = layer_config(layer).attention == AttentionKind::sliding;
  table_ = sliding ? &window_table_ : &compressed_table_;
  const std::array<Projection, 2>& fn_bf16 = prepared_.fn_bf16[static_cast<std::size_t>(layer)];
  hc_pre(weights.attention_hc, fn_bf16[0], "attn_hc", layer);
  rms_norm(collapsed_, weights.attention.norm.view(), normed_);
  show(layer, "attn_norm_out", normed_, {config_.hidden_size});
  attention(layer);
  show(layer, "attn_out", y_, {config_.hidden_size});
  hc_post(layer);
  hc_pre(weights.moe_hc, fn_bf16[1], "ffn_hc", layer);
  rms_norm(collapsed_, weights.moe.norm.view(), normed_);
  show(layer, "ffn_norm_out", normed_, {config_.hidden_size});
  moe(layer);
  show(layer, "mlp_out", y_, {config_.hidden_size});
  hc_post(layer);
  show(layer, "out_streams", streams_, {config_.hc_mult, config_.hidden_size});
}

void Pass::hc_pre(const HyperConnection& weights, const Projection& fn_bf16, const char* port, int layer) {
  const std::int64_t n = config_.hc_mult;
  post_.resize(rows_, n);
  comb_.resize(rows_, n * n);
  collapsed_.resize(rows_, config_.hidden_size);
  const bool bf16 = settings_.use(switch_index("mhc.bf16_mix"), layer);
  const bool fused = settings_.use(switch_index("mhc.fused"), layer);
  const auto product = backend_ == Backend::ref ? mix_side<Backend::ref>(bf16) : mix_side<Backend::cpu>(bf16);
  each_rows([&](std::int64_t begin, std::int64_t end) {
    const HcPre pre{.streams = streams_.view(begin, end, n),
                    .fn = weights.fn.view(),
                    .base = weights.base.view(),
                    .scale = weights.scale.view(),
                    .eps = config_.rms_norm_eps,
                    .hc_eps = config_.hc_eps,
                    .iters = config_.hc_sinkhorn_iters,
                    .post = post_.view(begin, end),
                    .comb = comb_.view(begin, end, n),
                    .collapsed = collapsed_.view(begin, end),
                    .fn_bf16 = fn_bf16.view(),
                    .product = product};
    hc_step(fused, {.pre = &pre});
  });
  if (!observed_) return;
  show(layer, fmt::format("{}.post", port).c_str(), post_, {n});
  show(layer, fmt::format("{}.comb", port).c_str(), comb_, {n, n});
  show(layer, fmt::format("{}.collapsed", port).c_str(), collapsed_, {config_.hidden_size});
}

void Pass::hc_post(int layer) {
  const std::int64_t n = config_.hc_mult;
  const bool fused = settings_.use(switch_index("mhc.fused"), layer);
  each_rows([&](std::int64_t begin, std::int64_t end) {
    const HcPost post{.y = y_.view(begin, end),
                      .post = post_.view(begin, end),
                      .comb = comb_.view(begin, end, n),
                      .streams = streams_.view(begin, end, n)};
    hc_step(fused, {.post = &post});
  });
}

void Pass::hc_step(bool fused, const HcStep& step) {
  if (fused)
    on_side<"mhc.fused">(backend_, step);
  else
    off_side<"mhc.fused">(backend_, step);
}

void Pass::head(View<float, 2> logits) {
  const std::int64_t n = config_.hc_mult, d = config_.hidden_size;
  std::vector<std::int64_t> row_of;  // rows of the batch that get logits
  for (const Sequence& sequence : sequences_)
    for (std::int64_t i = sequence.in.all_logits ? 0 : sequence.rows - 1; i < sequence.rows; ++i)
      row_of.push_back(sequence.first_row + i);
  const auto count = static_cast<std::int64_t>(row_of.size());
  CHECK(logits.extent(0) == count && logits.extent(1) == config_.vocab_size);
  RowTensor mixed, normed;
  mixed.resize(count, d);
  normed.resize(count, d);
  // Rows that share a stage between sequences are shown with the rows of each one only.
  const auto show_rows = [&](const char* name, float* data, std::int64_t width) {
    std::int64_t row = 0;
    for (const Sequence& sequence : sequences_) {
      const std::int64_t rows = sequence.in.all_logits ? sequence.rows : 1;
      show_to(sequence, -1, name, sequence.first_position + sequence.rows - rows, {rows, width}, data + row * width,
              nullptr);
      row += rows;
    }
  };
  each_rows(count, [&](std::int64_t begin, std::int64_t end) {
    // Runs of rows that are neighbours in the batch too.
    for (std::int64_t i = begin, next; i < end; i = next) {
      const std::int64_t row = row_of[static_cast<std::size_t>(i)];
      for (next = i + 1; next < end && row_of[static_cast<std::size_t>(next)] == row + next - i;) ++next;
      op<&hc_head_ref>()({.streams = streams_.view(row, row + next - i, n),
                          .fn = weights_.head_hc_fn.view(),
                          .base = weights_.head_hc_base.view(),
                          .scale = weights_.head_hc_scale.view(),
                          .eps = config_.rms_norm_eps,
                          .hc_eps = config_.hc_eps,
                          .out = mixed.view(i, next)});
    }
  });
  show_rows("hc_head_out", mixed.row(0), d);
  each_rows(count, [&](std::int64_t begin, std::int64_t end) {
    op<&rms_norm_ref>()({.x = mixed.view(begin, end),
                         .weight = weights_.norm.view(),
                         .eps = config_.rms_norm_eps,
                         .out = normed.view(begin, end)});
  });
  show_rows("final_norm_out", normed.row(0), d);
  each_tile(count, config_.vocab_size, [&](std::int64_t begin, std::int64_t end, OutputRange outputs) {
    op<&linear_ref>()({.x = normed.view(begin, end),
                       .weight = weights_.head.view(),
                       .out = logits.rows(begin, end),
                       .outputs = outputs});
  });
  show_rows("logits", logits.data(), config_.vocab_size);
}

void Pass::linear(RowTensor& x, const Projection& weight, RowTensor& out) {
  out.resize(rows_, weight.view().extent(1));
  each_tile(rows_, out.width(), [&](std::int64_t begin, std::int64_t end, OutputRange outputs) {
    op<&linear_ref>()(
        {.x = x.view(begin, end), .weight = weight.view(), .out = out.view(begin, end), .outputs = outputs});
  });
}

void Pass::linear(int layer, RowTensor& x, const Projection& weight, const Fp8Matrix& fp8, RowTensor& out) {
  out.resize(rows_, weight.view().extent(1));
  const bool on = settings_.use(switch_index("linear.fp8"), layer);
  each_tile(rows_, out.width(), [&](std::int64_t begin, std::int64_t end, OutputRange outputs) {
    const LinearFp8 args{
        {.x = x.view(begin, end), .weight = weight.view(), .out = out.view(begin, end), .outputs = outputs}, &fp8};
    if (on)
      on_side<"linear.fp8">(backend_, args);
    else
      off_side<"linear.fp8">(backend_, args);
  });
}

void Pass::rms_norm(RowTensor& x, View<const float, 1> weight, RowTensor& out, std::int64_t heads) {
  out.resize(rows_, x.width());
  const std::int64_t width = x.width() / heads;
  each_rows([&](std::int64_t begin, std::int64_t end) {
    op<&rms_norm_ref>()({.x = View<const float, 2>(x.row(begin), {(end - begin) * heads, width}),
                         .weight = weight,
                         .eps = config_.rms_norm_eps,
                         .out = View<float, 2>(out.row(begin), {(end - begin) * heads, width})});
  });
}

void Pass::rope(RowTensor& x, std::int64_t heads, bool inverse) {
  const std::int64_t half = config_.rope_dim / 2;
  each_rows([&](std::int64_t begin, std::int64_t end) {
    const Rope rotation{.x = x.view(begin, end, heads),
                        .table = View<const double, 3>(table_->data() + begin * half * 2, {end - begin, half, 2}),
                        .inverse = inverse};
    if (inverse)
      run_step<"attention.derotate">(backend_, rotation);
    else
      op<&rope_ref>()(rotation);
  });
}

void Pass::show(int layer, const char* name, RowTensor& tensor, std::initializer_list<std::int64_t> extents) {
  if (!observed_) return;
  for (const Sequence& sequence : sequences_) {
    std::vector<std::int64_t> all{sequence.rows};
    all.insert(all.end(), extents);
    show_to(sequence, layer, name, sequence.first_position, std::move(all), tensor.row(sequence.first_row), nullptr);
  }
}

void Pass::show(int layer, const char* name, std::vector<std::int32_t>& tensor, std::int64_t width) {
  if (!observed_) return;
  for (const Sequence& sequence : sequences_)
    show_to(sequence, layer, name, sequence.first_position, {sequence.rows, width}, nullptr,
            tensor.data() + sequence.first_row * width);
}

void Pass::show_to(const Sequence& sequence, int layer, const char* name, std::int64_t first,
                   std::vector<std::int64_t> extents, float* f32, std::int32_t* i32) {
  if (sequence.in.observer == nullptr) return;
  const std::string full = layer < 0 ? std::string(name) : fmt::format("layers.{}.{}", layer, name);
  sequence.in.observer->visit({.name = full, .first = first, .extents = extents, .f32 = f32, .i32 = i32});
}

}  // namespace plumb
