#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "ops/paged_rows.h"
#include "switches/switches.h"

namespace plumb {

/// Positions a page covers; a multiple of every compress rate.
inline constexpr std::int64_t kPageTokens = 128;

/// Where a kind of state lives: in the page of its positions, in a window page (freed when it leaves the window), or in
/// the open part, which changes with every token.
enum class Home { page, window_page, open };

/// One kind of state: `rows` rows of `width` 4-byte words each, at word offset `offset` of its home. A word is an f32
/// where `format` is f32, else four bytes of it: whoever moves state moves words, and only ops look inside.
struct StateKind {
  std::string
      name;  // for example "layers.2.rows", "layers.2.index_rows", "layers.2.window", "layers.2.compressor.open_k"
  Home home;
  int layer;
  std::int64_t rows;
  std::int64_t width;
  std::int64_t offset;
  RowFormat format = RowFormat::f32;
};

/// How the state of a sequence is laid out, derived from the config and the switches of the launch that decide how rows
/// are stored (kv.fp8, indexer.fp8_keys). Save, restore, digests and accounting iterate over `kinds`, so that a new
/// kind cannot be forgotten. "Floats" are 4-byte words throughout.
class StateLayout {
 public:
  explicit StateLayout(const ModelConfig& config, const Settings& launch = {});

  const std::vector<StateKind>& kinds() const { return kinds_; }
  std::int64_t page_floats() const { return page_floats_; }
  std::int64_t window_page_floats() const { return window_page_floats_; }
  std::int64_t open_floats() const { return open_floats_; }
  /// A tail: the open part, then the last window-1 window rows of every layer.
  std::int64_t tail_floats() const { return open_floats_ + tail_window_rows_ * window_row_floats_; }
  std::int64_t window() const { return window_; }

  /// Word offsets of the kinds of one layer, -1 where the layer has none.
  struct LayerOffsets {
    std::int64_t window;                      // window page: 128 rows of head_dim values, in format kv
    std::int64_t rows;                        // page: 128/rate rows of head_dim values, in format kv
    std::int64_t index_rows;                  // page: 128/rate rows of index_head_dim values, in format keys
    std::int64_t open_k, open_s;              // open: [rate][halves*head_dim]
    std::int64_t previous_k, previous_s;      // open: [rate][head_dim], overlapping compressors
    std::int64_t index_open_k, index_open_s;  // open: [rate][halves*index_head_dim]
    std::int64_t index_previous_k, index_previous_s;
    RowFormat kv, keys;
  };
  const LayerOffsets& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }

 private:
  std::vector<StateKind> kinds_;
  std::vector<LayerOffsets> layers_;
  std::int64_t page_floats_ = 0;
  std::int64_t window_page_floats_ = 0;
  std::int64_t open_floats_ = 0;
  std::int64_t tail_window_rows_ = 0;
  std::int64_t window_row_floats_ = 0;  // all layers
  std::int64_t window_ = 0;
};

/// The state of one sequence after `length` positions. It owns the open part; pages belong to a pool.
///
/// Row n of a layer with rate r sits in pages[n*r/128] at row (n*r%128)/r. The window row of position p sits in
/// window_pages[p/128] at row p%128. Before a forward pass over positions [length, length+n) the caller provides every
/// page and window page of those positions; window pages entirely before length-(window-1) may be null.
struct SequenceState {
  std::int64_t length = 0;
  std::vector<float*> pages;
  std::vector<float*> window_pages;
  std::vector<float> open;  // open_floats(); fresh_open() at the start of a sequence
};

/// The open part of a sequence of length 0: k = 0, s = -inf, so that an absent previous group has weight exactly 0.
std::vector<float> fresh_open(const StateLayout& layout);

/// Copies the tail of `state` (open part and the last window-1 window rows; rows before position 0 are zero) to `tail`.
void save_tail(const StateLayout& layout, const SequenceState& state, std::span<float> tail);

/// The inverse: sets open part, window rows and length. Window pages of the tail's positions must be present.
void restore_tail(const StateLayout& layout, std::span<const float> tail, std::int64_t length, SequenceState& state);

}  // namespace plumb
