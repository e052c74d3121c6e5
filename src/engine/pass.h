#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "ops/experts/experts.h"
#include "ops/experts_nvfp4/experts_nvfp4.h"
#include "ops/hyper_connection_fused/hyper_connection_fused.h"
#include "ops/linear/linear.h"
#include "ops/linear_fp8/linear_fp8.h"
#include "ops/stored_rows/stored_rows.h"

namespace plumb {

/// What an engine derives from its model and its launch settings once: weights in the form that ops take, rotary
/// frequencies and, with rope.table on, the angles of every position.
struct Prepared {
  Prepared(const Model& model, const Settings& launch);
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // Projections that the release stores in FP8.
  struct Fp8Projections {
    Fp8Matrix q_a, q_b, kv, o_b, index_q_b;
  };
  std::vector<Fp8Projections> fp8;           // [layer]; empty matrices where linear.fp8 is off
  std::vector<std::vector<Nvfp4Mlp>> nvfp4;  // [layer][expert]; no experts where moe.nvfp4_experts is off

  // fn of the attention's and the experts' site, rounded to bf16.
  std::vector<std::array<Projection, 2>> fn_bf16;         // [layer]
  std::vector<std::vector<GatedMlp>> routed;              // [layer][expert]
  std::vector<GatedMlp> shared;                           // [layer]
  std::vector<double> window_frequencies, window_angles;  // angles [positions, rope_dim/2, 2], or empty
  std::vector<double> compressed_frequencies, compressed_angles;

 private:
  void quantise(const Model& model, const Settings& launch);
};

/// A tensor of a pass: `width` floats for each row of the batch, in the order of its sequences.
class RowTensor {
 public:
  /// Memory is kept when it is more than is needed; what it holds is left over.
  void resize(std::int64_t rows, std::int64_t width);
  std::int64_t width() const { return width_; }
  std::int64_t rows() const { return rows_; }
  float* row(std::int64_t i) { return data_.data() + i * width_; }
  View<float, 2> view() { return view(0, rows_); }
  View<float, 2> view(std::int64_t begin, std::int64_t end) { return {row(begin), {end - begin, width_}}; }
  /// Rows [begin, end) as [rows, outer, width / outer].
  View<float, 3> view(std::int64_t begin, std::int64_t end, std::int64_t outer) {
    return {row(begin), {end - begin, outer, width_ / outer}};
  }

 private:
  std::vector<float> data_;
  std::int64_t rows_ = 0;
  std::int64_t width_ = 0;
};

/// One forward pass over one batch at a time. All working memory is here, kept from pass to pass and freed with it; its
/// size is linear in the number of rows: index scores, the only tensor that would grow with rows times context, exist
/// for kIndexRows rows at a time.
class Pass {
 public:
  Pass(const Model& model, const Prepared& prepared, const StateLayout& layout, Executor& executor, Backend backend);
  void run(const Batch& batch, View<float, 2> logits);
  /// Rows of the last pass.
  std::int64_t rows() const { return rows_; }

 private:
  /// Queries whose index scores are stored at one time by one thread.
  static constexpr std::int64_t kIndexRows = 64;

  struct Sequence {
    BatchSequence in;
    std::int64_t first_row;  // in the batch
    std::int64_t rows;
    std::int64_t first_position;
  };
  // A contiguous part of one sequence's rows; begin and end count in the batch.
  struct Part {
    const Sequence* sequence;
    std::int64_t begin;
    std::int64_t end;
    std::int64_t first_position() const { return sequence->first_position + begin - sequence->first_row; }
  };

  // The tensors that hold one compressor's items, gates with position bias.
  struct Items {
    RowTensor k, s;
  };

  void take(const Batch& batch);
  void embed();
  void run_layer(int layer);
  void attention(int layer);
  void queries(int layer);
  void window_rows(int layer);
  void store_kv(bool fp8, const StoreRows& rows);
  void compress(int layer, const CompressorWeights& weights, std::int64_t rate, std::int64_t width, bool index);
  void compress_sequence(int layer, const CompressorWeights& weights, std::int64_t rate, std::int64_t width, bool index,
                         Items& items, const Sequence& sequence);
  void select_rows(int layer);
  void select_part(int layer, bool fused, const Part& part);
  void attend(int layer);
  void output_projection(int layer);
  void moe(int layer);
  void route(int layer, double scaling);
  void head(View<float, 2> logits);
  void hc_pre(const HyperConnection& weights, const Projection& fn_bf16, const char* port, int layer);
  void hc_post(int layer);
  void hc_step(bool fused, const HcStep& step);
  void linear(RowTensor& x, const Projection& weight, RowTensor& out);
  // The same where linear.fp8 chooses which of the two weights is used.
  void linear(int layer, RowTensor& x, const Projection& weight, const Fp8Matrix& fp8, RowTensor& out);
  // Runs body(rows begin, rows end, outputs) in parallel: parts of the rows, or of the outputs when rows are few.
  template <class Body>
  void each_tile(std::int64_t rows, std::int64_t outputs, Body&& body);
  void rms_norm(RowTensor& x, View<const float, 1> weight, RowTensor& out, std::int64_t heads = 1);
  void rope(RowTensor& x, std::int64_t heads, bool inverse);
  void fill_table(std::span<const double> frequencies, const std::vector<double>& angles, std::vector<double>& table);
  // Angles of `rows` positions first, first + step, ... into `to` [rows, rope_dim/2, 2].
  void fill_angles(std::span<const double> frequencies, const std::vector<double>& angles, std::int64_t first,
                   std::int64_t step, std::int64_t rows, double* to);

  // An op on the backend of this pass.
  template <auto* Reference>
  auto* op() const {
    return on_backend<Reference>(backend_);
  }

  // Runs body(begin, end) over the rows of the batch, in parallel.
  template <class Body>
  void each_rows(Body&& body) {
    each_rows(rows_, std::forward<Body>(body));
  }
  template <class Body>
  void each_rows(std::int64_t rows, Body&& body);
  // Runs body(Part) over the rows of the batch, in parallel, in parts of at most `most` rows.
  template <class Body>
  void each_part(std::int64_t most, bool in_order, Body&& body);

  // Shows a tensor to the observers of the sequences. Extents without the rows; `layer` -1: no layer.
  void show(int layer, const char* name, RowTensor& tensor, std::initializer_list<std::int64_t> extents);
  void show(int layer, const char* name, std::vector<std::int32_t>& tensor, std::int64_t width);
  void show_to(const Sequence& sequence, int layer, const char* name, std::int64_t first,
               std::vector<std::int64_t> extents, float* f32, std::int32_t* i32);

  const LayerConfig& layer_config(int layer) const { return config_.layers[static_cast<std::size_t>(layer)]; }
  const LayerWeights& layer_weights(int layer) const { return weights_.layers[static_cast<std::size_t>(layer)]; }
  PagedRows stored_window(int layer, const Sequence& sequence) const;
  PagedRows stored_rows(int layer, const Sequence& sequence, bool index) const;

  const ModelConfig& config_;
  const ModelWeights& weights_;
  const Prepared& prepared_;
  const StateLayout& layout_;
  Executor& executor_;
  const Backend backend_;
  Settings settings_;
  std::vector<Sequence> sequences_;
  std::int64_t rows_ = 0;
  bool observed_ = false;
  std::vector<std::int32_t> tokens_;
  std::vector<double> window_table_, compressed_table_;  // [rows, rope_dim/2, 2]
  const std::vector<double>* table_ = nullptr;           // of the current layer

  RowTensor embedded_, streams_, post_, comb_, collapsed_, normed_, y_;
  RowTensor qr_low_, qr_, q_, kv_, index_q_, index_weights_, heads_, o_low_;
  RowTensor router_logits_, router_weights_;
  std::vector<std::int32_t> selected_, experts_;
};

}  // namespace plumb
