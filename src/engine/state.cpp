#include "engine/state.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"

namespace plumb {
namespace {

constexpr float kAbsentGate = -std::numeric_limits<float>::infinity();

bool holds_gates(const StateKind& kind) { return kind.name.ends_with("_s"); }

// Calls visit(kind, position, floats of that row in the tail) for the window rows of a tail, zeros before position 0
// included; returns the tail's size.
template <class Visit>
std::int64_t for_each_tail_window_row(const StateLayout& layout, std::int64_t length, Visit&& visit) {
  std::int64_t offset = layout.open_floats();
  for (const StateKind& kind : layout.kinds()) {
    if (kind.home != Home::window_page) continue;
    for (std::int64_t position = length - (layout.window() - 1); position < length; ++position) {
      visit(kind, position, offset);
      offset += kind.width;
    }
  }
  return offset;
}

float* window_row(const SequenceState& state, const StateKind& kind, std::int64_t position) {
  const auto page = static_cast<std::size_t>(position / kPageTokens);
  CHECK(page < state.window_pages.size() && state.window_pages[page] != nullptr);
  return state.window_pages[page] + kind.offset + position % kPageTokens * kind.width;
}

}  // namespace

StateLayout::StateLayout(const ModelConfig& config, const Settings& launch) : window_(config.window) {
  CHECK(config.window >= 1);
  tail_window_rows_ = config.window - 1;
  const auto add = [&](Home home, int layer, const std::string& name, std::int64_t rows, std::int64_t width,
                       RowFormat format = RowFormat::f32) {
    std::int64_t& size = home == Home::page          ? page_floats_
                         : home == Home::window_page ? window_page_floats_
                                                     : open_floats_;
    const std::int64_t offset = size;
    kinds_.push_back({fmt::format("layers.{}.{}", layer, name), home, layer, rows, width, offset, format});
    size += rows * width;
    return offset;
  };
  for (int i = 0; i < static_cast<int>(config.layers.size()); ++i) {
    const LayerConfig& layer = config.layers[static_cast<std::size_t>(i)];
    LayerOffsets at{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, RowFormat::f32, RowFormat::f32};
    if (launch.on(switch_index("kv.fp8"), i)) at.kv = RowFormat::fp8_kv;
    if (launch.on(switch_index("indexer.fp8_keys"), i)) at.keys = RowFormat::fp8_key;
    const std::int64_t kv_words = row_words(at.kv, config.head_dim, config.rope_dim);
    at.window = add(Home::window_page, i, "window", kPageTokens, kv_words, at.kv);
    window_row_floats_ += kv_words;
    const std::int64_t rate = layer.compress_rate;
    if (layer.attention != AttentionKind::sliding) {
      CHECK(rate > 0 && kPageTokens % rate == 0);
      const bool overlapping = layer.attention == AttentionKind::compressed_sparse;
      const std::int64_t width = (overlapping ? 2 : 1) * config.head_dim;
      at.rows = add(Home::page, i, "rows", kPageTokens / rate, kv_words, at.kv);
      at.open_k = add(Home::open, i, "compressor.open_k", rate, width);
      at.open_s = add(Home::open, i, "compressor.open_s", rate, width);
      if (overlapping) {
        at.previous_k = add(Home::open, i, "compressor.previous_k", rate, config.head_dim);
        at.previous_s = add(Home::open, i, "compressor.previous_s", rate, config.head_dim);
        const std::int64_t index_dim = config.index_head_dim;
        const std::int64_t key_words = row_words(at.keys, index_dim, config.rope_dim);
        at.index_rows = add(Home::page, i, "index_rows", kPageTokens / rate, key_words, at.keys);
        at.index_open_k = add(Home::open, i, "indexer.compressor.open_k", rate, 2 * index_dim);
        at.index_open_s = add(Home::open, i, "indexer.compressor.open_s", rate, 2 * index_dim);
        at.index_previous_k = add(Home::open, i, "indexer.compressor.previous_k", rate, index_dim);
        at.index_previous_s = add(Home::open, i, "indexer.compressor.previous_s", rate, index_dim);
      }
    }
    layers_.push_back(at);
  }
}

std::vector<float> fresh_open(const StateLayout& layout) {
  std::vector<float> open(static_cast<std::size_t>(layout.open_floats()), 0.0f);
  for (const StateKind& kind : layout.kinds())
    if (kind.home == Home::open && holds_gates(kind))
      std::fill_n(open.begin() + kind.offset, kind.rows * kind.width, kAbsentGate);
  return open;
}

void save_tail(const StateLayout& layout, const SequenceState& state, std::span<float> tail) {
  CHECK(static_cast<std::int64_t>(tail.size()) == layout.tail_floats());
  CHECK(static_cast<std::int64_t>(state.open.size()) == layout.open_floats());
  std::copy(state.open.begin(), state.open.end(), tail.begin());
  const std::int64_t end = for_each_tail_window_row(
      layout, state.length, [&](const StateKind& kind, std::int64_t position, std::int64_t offset) {
        float* to = tail.data() + offset;
        if (position < 0)
          std::fill_n(to, kind.width, 0.0f);
        else
          std::copy_n(window_row(state, kind, position), kind.width, to);
      });
  CHECK(end == layout.tail_floats());
}

void restore_tail(const StateLayout& layout, std::span<const float> tail, std::int64_t length, SequenceState& state) {
  CHECK(static_cast<std::int64_t>(tail.size()) == layout.tail_floats() && length >= 0);
  state.length = length;
  state.open.assign(tail.begin(), tail.begin() + layout.open_floats());
  for_each_tail_window_row(layout, length, [&](const StateKind& kind, std::int64_t position, std::int64_t offset) {
    if (position >= 0) std::copy_n(tail.data() + offset, kind.width, window_row(state, kind, position));
  });
}

}  // namespace plumb
