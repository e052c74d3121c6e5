#include <algorithm>
#include <limits>

#include "base/math.h"
#include "ops/compressor/compressor.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"

namespace plumb {
namespace {

constexpr std::int64_t kChannels = kPoolChannels;
constexpr std::int64_t kMaxItems = 256;  // two windows of 128

using Item = CompressorItem;

// The stored key and gate of a position, from the pass or from the open state.
Item stored(const Compressor& a, std::int64_t position) {
  const std::int64_t t = position - a.first_position;
  if (t >= 0) return {a.k.row(t), a.s.row(t)};
  return {a.state.open_k.row(position % a.rate), a.state.open_s.row(position % a.rate)};
}

// Item i of window n; overlapping windows have 2 * rate items, others rate.
Item item(const Compressor& a, std::int64_t window, std::int64_t i, bool overlapping, std::int64_t width) {
  if (!overlapping) return stored(a, window * a.rate + i);
  if (i >= a.rate) {
    const Item own = stored(a, window * a.rate + i - a.rate);
    return {own.k + width, own.s + width};
  }
  // The window before the one that was open at the start of the pass is only in `previous`.
  if (window == a.first_position / a.rate) return {a.state.previous_k.row(i), a.state.previous_s.row(i)};
  return stored(a, (window - 1) * a.rate + i);
}

// pooled[c] for `count` channels from `first` on; items holds every item of the window.
void pool_channels(const Item* items, std::int64_t item_count, std::int64_t first, std::int64_t count, float* pooled) {
  double weight[kMaxItems * kChannels];
  double peak[kChannels], total[kChannels], sum[kChannels];
  std::fill_n(peak, count, -math::kInfinity);
  for (std::int64_t i = 0; i < item_count; ++i)
    for (std::int64_t c = 0; c < count; ++c) {
      const double s = items[i].s[first + c];
      peak[c] = s > peak[c] ? s : peak[c];
    }
  for (std::int64_t i = 0; i < item_count; ++i)
    for (std::int64_t c = 0; c < count; ++c) weight[i * count + c] = items[i].s[first + c] - peak[c];
  math::exp_all({weight, static_cast<std::size_t>(item_count * count)});
  std::fill_n(total, count, 0.0);
  std::fill_n(sum, count, 0.0);
  for (std::int64_t i = 0; i < item_count; ++i)
    for (std::int64_t c = 0; c < count; ++c) {
      total[c] += weight[i * count + c];
      sum[c] += weight[i * count + c] * items[i].k[first + c];
    }
  for (std::int64_t c = 0; c < count; ++c) pooled[first + c] = static_cast<float>(sum[c] / total[c]);
}

}  // namespace

void position_bias_ref(const PositionBias& a) {
  const std::int64_t width = a.s.extent(1), rate = a.bias.extent(0);
  CHECK(a.bias.extent(1) == width);
  for (std::int64_t t = 0; t < a.s.extent(0); ++t) {
    const float* bias = a.bias.row((a.first_position + t) % rate);
    for (std::int64_t c = 0; c < width; ++c) a.s.row(t)[c] += bias[c];
  }
}

void compress_rows(const Compressor& a, PoolChannels pool, Backend backend) {
  const std::int64_t width = a.rows.extent(1);
  const bool overlapping = a.k.extent(1) == 2 * width;
  const std::int64_t item_count = overlapping ? 2 * a.rate : a.rate;
  CHECK((overlapping || a.k.extent(1) == width) && item_count <= kMaxItems);
  CHECK(a.table.extent(0) == a.rows.extent(0));
  CHECK((a.first_window + a.rows.extent(0)) * a.rate <= a.first_position + a.k.extent(0));
  Item items[kMaxItems];
  for (std::int64_t i = 0; i < a.rows.extent(0); ++i) {
    const std::int64_t window = a.first_window + i;
    const View<float, 2> row = a.rows.rows(i, i + 1);
    for (std::int64_t j = 0; j < item_count; ++j) items[j] = item(a, window, j, overlapping, width);
    for (std::int64_t c = 0; c < width; c += kChannels)
      pool(items, item_count, c, std::min(kChannels, width - c), row.data());
    on_backend<&rms_norm_ref>(backend)({.x = row, .weight = a.norm, .eps = a.eps, .out = row});
    on_backend<&rope_ref>(backend)(
        {.x = View<float, 3>(row.data(), {1, 1, width}), .table = a.table.rows(i, i + 1), .inverse = false});
  }
}

void compressor_ref(const Compressor& a) { compress_rows(a, &pool_channels); }

void compressor_carry_ref(const CompressorCarry& a) {
  const std::int64_t items = a.k.extent(1), end = a.first_position + a.k.extent(0);
  for (std::int64_t t = 0; t < a.k.extent(0); ++t) {
    const std::int64_t slot = (a.first_position + t) % a.rate;
    std::copy_n(a.k.row(t), items, a.state.open_k.row(slot));
    std::copy_n(a.s.row(t), items, a.state.open_s.row(slot));
    if (slot != a.rate - 1) continue;
    if (a.state.previous_k.data() != nullptr) {
      const std::int64_t width = a.state.previous_k.extent(1);
      for (std::int64_t i = 0; i < a.rate; ++i) {
        std::copy_n(a.state.open_k.row(i), width, a.state.previous_k.row(i));
        std::copy_n(a.state.open_s.row(i), width, a.state.previous_s.row(i));
      }
    }
  }
  // The state is a function of the tokens alone: slots of a window that is not open yet hold nothing.
  for (std::int64_t slot = end % a.rate; slot < a.rate; ++slot) {
    std::fill_n(a.state.open_k.row(slot), items, 0.0f);
    std::fill_n(a.state.open_s.row(slot), items, -std::numeric_limits<float>::infinity());
  }
}

}  // namespace plumb
