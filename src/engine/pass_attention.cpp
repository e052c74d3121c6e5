#include <algorithm>
#include <functional>

#include "engine/pass.h"
#include "engine/pass_rows.h"
#include "ops/compressor_fused/compressor_fused.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/indexer_fused/indexer_fused.h"
#include "ops/linear/linear.h"
#include "ops/query_scale/query_scale.h"
#include "ops/sparse_attention_split/sparse_attention_split.h"
#include "ops/stored_rows/stored_rows.h"

namespace plumb {
namespace {

constexpr std::int64_t kAttentionRows = 16;  // queries that share one scratch
constexpr std::int64_t kStoreRows = 32;      // rows that one thread stores at a time

}  // namespace

PagedRows Pass::stored_window(int layer, const Sequence& sequence) const {
  const StateLayout::LayerOffsets& at = layout_.layer(layer);
  return {sequence.in.state->window_pages, at.window, kPageTokens, config_.head_dim, at.kv, config_.rope_dim};
}

PagedRows Pass::stored_rows(int layer, const Sequence& sequence, bool index) const {
  const StateLayout::LayerOffsets& at = layout_.layer(layer);
  return {sequence.in.state->pages,
          index ? at.index_rows : at.rows,
          kPageTokens / layer_config(layer).compress_rate,
          index ? config_.index_head_dim : config_.head_dim,
          index ? at.keys : at.kv,
          config_.rope_dim};
}

void Pass::attention(int layer) {
  const LayerConfig& config = layer_config(layer);
  const AttentionWeights& weights = layer_weights(layer).attention;
  queries(layer);
  window_rows(layer);
  if (config.attention != AttentionKind::sliding)
    compress(layer, weights.compressor, config.compress_rate, config_.head_dim, false);
  if (config.attention == AttentionKind::compressed_sparse) {
    compress(layer, weights.indexer.compressor, config.compress_rate, config_.index_head_dim, true);
    select_rows(layer);
  }
  attend(layer);
  output_projection(layer);
}

void Pass::queries(int layer) {
  const AttentionWeights& weights = layer_weights(layer).attention;
  const Prepared::Fp8Projections& fp8 = prepared_.fp8[static_cast<std::size_t>(layer)];
  linear(layer, normed_, weights.q_a, fp8.q_a, qr_low_);
  rms_norm(qr_low_, weights.q_norm.view(), qr_);
  show(layer, "qr", qr_, {config_.q_lora_rank});
  linear(layer, qr_, weights.q_b, fp8.q_b, q_);
  rms_norm(q_, {}, q_, config_.heads);
  rope(q_, config_.heads, false);
  show(layer, "q", q_, {config_.heads, config_.head_dim});
}

void Pass::window_rows(int layer) {
  const AttentionWeights& weights = layer_weights(layer).attention;
  linear(layer, normed_, weights.kv, prepared_.fp8[static_cast<std::size_t>(layer)].kv, kv_);
  rms_norm(kv_, weights.kv_norm.view(), kv_);
  rope(kv_, 1, false);
  show(layer, "kv", kv_, {config_.head_dim});
  const bool fp8 = settings_.use(switch_index("kv.fp8"), layer);
  each_part(kStoreRows, false, [&](const Part& part) {
    store_kv(fp8, {.x = kv_.view(part.begin, part.end),
                   .first = part.first_position(),
                   .rows = stored_window(layer, *part.sequence)});
  });
}

void Pass::store_kv(bool fp8, const StoreRows& rows) {
  if (fp8)
    on_side<"kv.fp8">(backend_, rows);
  else
    off_side<"kv.fp8">(backend_, rows);
}

void Pass::compress(int layer, const CompressorWeights& weights, std::int64_t rate, std::int64_t width, bool index) {
  Items items;
  linear(normed_, weights.kv, items.k);
  linear(normed_, weights.gate, items.s);
  for (const Sequence& sequence : sequences_) compress_sequence(layer, weights, rate, width, index, items, sequence);
}

void Pass::compress_sequence(int layer, const CompressorWeights& weights, std::int64_t rate, std::int64_t width,
                             bool index, Items& items, const Sequence& sequence) {
  const StateLayout::LayerOffsets& at = layout_.layer(layer);
  const std::int64_t first_row = sequence.first_row, end_row = first_row + sequence.rows, item_width = items.k.width();
  const auto state_in = [&](std::vector<float>& open) {
    const auto view = [&](std::int64_t offset, std::int64_t row_width) {
      return View<float, 2>(offset < 0 ? nullptr : open.data() + offset, {rate, row_width});
    };
    return CompressorState{view(index ? at.index_open_k : at.open_k, item_width),
                           view(index ? at.index_open_s : at.open_s, item_width),
                           view(index ? at.index_previous_k : at.previous_k, width),
                           view(index ? at.index_previous_s : at.previous_s, width)};
  };
  const CompressorState state = state_in(sequence.in.state->open);
  const View<float, 2> k = items.k.view(first_row, end_row), s = items.s.view(first_row, end_row);
  op<&position_bias_ref>()({.s = s, .bias = weights.position_bias.view(), .first_position = sequence.first_position});

  const std::int64_t first_window = sequence.first_position / rate;
  const std::int64_t windows = (sequence.first_position + sequence.rows) / rate - first_window;
  RowTensor rows;
  rows.resize(windows, width);
  std::vector<double> table(static_cast<std::size_t>(windows * config_.rope_dim));
  fill_angles(prepared_.compressed_frequencies, prepared_.compressed_angles, first_window * rate, rate, windows,
              table.data());
  const bool fused = settings_.use(switch_index("compressor.fused"), layer);
  executor_.parallel_for(windows, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t half = config_.rope_dim / 2;
    const Compressor args{.k = k,
                          .s = s,
                          .state = state,
                          .first_position = sequence.first_position,
                          .rate = rate,
                          .norm = weights.norm.view(),
                          .eps = config_.rms_norm_eps,
                          .table = {table.data() + begin * half * 2, {end - begin, half, 2}},
                          .first_window = first_window + begin,
                          .rows = rows.view(begin, end)};
    if (fused)
      on_side<"compressor.fused">(backend_, args);
    else
      off_side<"compressor.fused">(backend_, args);
  });
  for (const OpenSnapshot& snapshot : sequence.in.snapshots) {
    const std::int64_t rows_before = snapshot.length - sequence.first_position;
    op<&compressor_carry_ref>()({.k = k.rows(0, rows_before),
                                 .s = s.rows(0, rows_before),
                                 .state = state_in(*snapshot.open),
                                 .first_position = sequence.first_position,
                                 .rate = rate});
  }
  op<&compressor_carry_ref>()(
      {.k = k, .s = s, .state = state, .first_position = sequence.first_position, .rate = rate});
  if (windows == 0) return;
  show_to(sequence, layer, index ? "indexer.keys" : "compressed_kv", first_window, {windows, width}, rows.row(0),
          nullptr);
  const StoreRows store{.x = rows.view(), .first = first_window, .rows = stored_rows(layer, sequence, index)};
  if (index)
    chosen_side<"indexer.fp8_keys">(backend_, settings_, layer, store);
  else
    store_kv(settings_.use(switch_index("kv.fp8"), layer), store);
}

void Pass::select_rows(int layer) {
  const IndexerWeights& weights = layer_weights(layer).attention.indexer;
  linear(layer, qr_, weights.q_b, prepared_.fp8[static_cast<std::size_t>(layer)].index_q_b, index_q_);
  rope(index_q_, config_.index_heads, false);
  linear(normed_, weights.head_weights, index_weights_);
  selected_.resize(static_cast<std::size_t>(rows_ * config_.index_topk));
  const bool fused = settings_.use(switch_index("indexer.fused"), layer);
  // Observers are called in order and on this thread.
  each_part(kIndexRows, observed_ && !fused, [&](const Part& part) { select_part(layer, fused, part); });
  show(layer, "indexer.topk", selected_, config_.index_topk);
}

void Pass::select_part(int layer, bool fused, const Part& part) {
  const std::int64_t rows = part.end - part.begin, rate = layer_config(layer).compress_rate, k = config_.index_topk;
  const std::int64_t visible = (part.first_position() + rows) / rate;
  std::vector<float> scores(static_cast<std::size_t>(fused ? 0 : rows * visible));
  const std::function<void(View<float, 2>)> seen = [&](View<float, 2> view) {
    show_to(*part.sequence, layer, "indexer.scores", part.first_position(), {rows, visible}, view.data(), nullptr);
  };
  const Indexer args{.q = index_q_.view(part.begin, part.end, config_.index_heads),
                     .head_weights = index_weights_.view(part.begin, part.end),
                     .keys = stored_rows(layer, *part.sequence, true),
                     .first_position = part.first_position(),
                     .rate = rate,
                     .scores = fused ? View<float, 2>() : View<float, 2>(scores.data(), {rows, visible}),
                     .seen = part.sequence->in.observer == nullptr ? nullptr : &seen,
                     .selected = {selected_.data() + part.begin * k, {rows, k}}};
  if (fused)
    on_side<"indexer.fused">(backend_, args);
  else
    off_side<"indexer.fused">(backend_, args);
}

void Pass::attend(int layer) {
  const LayerConfig& config = layer_config(layer);
  const bool sparse = config.attention == AttentionKind::compressed_sparse;
  const bool compressed = config.attention != AttentionKind::sliding;
  heads_.resize(rows_, config_.heads * config_.head_dim);
  const bool split = settings_.use(switch_index("attention.split_k"), layer);
  const bool bf16 = settings_.use(switch_index("attention.q_bf16"), layer);
  each_part(kAttentionRows, false, [&](const Part& part) {
    AttentionScratch scratch;
    const std::int64_t k = config_.index_topk, rows = part.end - part.begin;
    const QueryScale queries{q_.view(part.begin, part.end, config_.heads)};
    const double scale =
        bf16 ? on_side<"attention.q_bf16">(backend_, queries) : off_side<"attention.q_bf16">(backend_, queries);
    const SparseAttention args{
        .q = queries.q,
        .scale = scale,
        .first_position = part.first_position(),
        .window_rows = stored_window(layer, *part.sequence),
        .window = config_.window,
        .rows = compressed ? stored_rows(layer, *part.sequence, false) : PagedRows(),
        .rate = config.compress_rate,
        .selected = sparse ? View<const std::int32_t, 2>(selected_.data() + part.begin * k, {rows, k})
                           : View<const std::int32_t, 2>(),
        .sinks = layer_weights(layer).attention.sinks.view(),
        .out = heads_.view(part.begin, part.end, config_.heads),
        .scratch = &scratch};
    if (split)
      on_side<"attention.split_k">(backend_, args);
    else
      off_side<"attention.split_k">(backend_, args);
  });
  rope(heads_, config_.heads, true);
  show(layer, "attn_heads", heads_, {config_.heads, config_.head_dim});
}

void Pass::output_projection(int layer) {
  const AttentionWeights& weights = layer_weights(layer).attention;
  const std::int64_t groups = config_.o_groups;
  o_low_.resize(rows_, groups * config_.o_lora_rank);
  each_tile(rows_, o_low_.width(), [&](std::int64_t begin, std::int64_t end, OutputRange outputs) {
    op<&grouped_linear_ref>()({.x = heads_.view(begin, end, groups),
                               .weight = weights.o_a.view(),
                               .out = o_low_.view(begin, end, groups),
                               .outputs = outputs});
  });
  show(layer, "o_low", o_low_, {groups, config_.o_lora_rank});
  linear(layer, o_low_, weights.o_b, prepared_.fp8[static_cast<std::size_t>(layer)].o_b, y_);
}

}  // namespace plumb
