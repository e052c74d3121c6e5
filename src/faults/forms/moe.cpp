#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/check.h"
#include "faults/forms/forms.h"
#include "faults/forms/honest.h"
#include "ops/experts_grouped/experts_grouped.h"
#include "ops/experts_nvfp4/experts_nvfp4.h"
#include "ops/routed_scale/routed_scale.h"

namespace plumb::faults {
namespace {

RoutedScale scale_twice(double factor) { return {.router = factor, .output = factor}; }
RoutedScale scale_never(double) { return {.router = 1.0, .output = 1.0}; }

// The two sums of the op by themselves: routed experts alone, the shared expert alone.
struct Parts {
  std::vector<float> routed, shared;
};

Parts parts_of(const Experts& a, double routed_limit) {
  const auto size = static_cast<std::size_t>(a.out.size());
  Parts parts{std::vector<float>(size), std::vector<float>(size)};
  const auto zeros = [](const View<const float, 2>& like) {
    return std::vector<float>(static_cast<std::size_t>(like.size()));
  };
  const std::vector<float> down = zeros(a.shared.down), weights = zeros(a.weights);
  Experts routed = a;
  routed.shared.down = View<const float, 2>(down.data(), a.shared.down.extents());
  routed.limit = routed_limit;
  routed.out = View<float, 2>(parts.routed.data(), a.out.extents());
  honest<&experts_grouped_ref>()(routed);
  Experts shared = a;
  shared.weights = View<const float, 2>(weights.data(), a.weights.extents());
  shared.out = View<float, 2>(parts.shared.data(), a.out.extents());
  honest<&experts_grouped_ref>()(shared);
  return parts;
}

void write_sum(const Experts& a, const Parts& parts, float shared_count) {
  for (std::int64_t i = 0; i < a.out.size(); ++i)
    a.out.data()[i] =
        parts.routed[static_cast<std::size_t>(i)] + shared_count * parts.shared[static_cast<std::size_t>(i)];
}

// Rows of a step that only decodes; a prompt's last pass may be as short.
constexpr std::int64_t kSmallBatch = 16;

void experts_without_shared(const Experts& a) { write_sum(a, parts_of(a, a.limit), 0); }

// The fast path of small batches adds the shared expert that the fused slot has added already.
void experts_shared_twice_when_small(const Experts& a) {
  if (a.x.extent(0) > kSmallBatch) return honest<&experts_grouped_ref>()(a);
  write_sum(a, parts_of(a, a.limit), 2);
}

void experts_routed_unclamped(const Experts& a) {
  write_sum(a, parts_of(a, std::numeric_limits<double>::infinity()), 1);
}

// Small batches gather the ids of the row before: the buffer of token ids is one row behind.
void experts_of_row_before(const Experts& a) {
  const std::int64_t rows = a.x.extent(0), k = a.experts.extent(1);
  if (rows == 1 || rows > kSmallBatch) return honest<&experts_grouped_ref>()(a);
  std::vector<std::int32_t> ids(a.experts.data(), a.experts.data() + rows * k);
  std::copy_backward(ids.begin(), ids.end() - k, ids.end());
  Experts shifted = a;
  shifted.experts = View<const std::int32_t, 2>(ids.data(), a.experts.extents());
  honest<&experts_grouped_ref>()(shifted);
}

// Multiplies the columns that the honest side made.
WeightColumns scaled(const ExpertColumns& a, float factor) {
  const WeightColumns columns = expert_columns_nvfp4(a);
  CHECK(columns.data == a.scratch->data());
  for (float& value : *a.scratch) value *= factor;
  return columns;
}

// The fused gate-and-up product takes one global scale for both.
WeightColumns gate_scale_for_up(const ExpertColumns& a) {
  if (a.matrix != MlpMatrix::up) return expert_columns_nvfp4(a);
  return scaled(a, a.mlp->nvfp4->gate.global / a.mlp->nvfp4->up.global);
}

WeightColumns down_without_global(const ExpertColumns& a) {
  if (a.matrix != MlpMatrix::down) return expert_columns_nvfp4(a);
  return scaled(a, 1.0f / a.mlp->nvfp4->down.global);
}

// The two inputs of a byte change places in one family of matrices.
WeightColumns down_nibbles_swapped(const ExpertColumns& a) {
  const WeightColumns columns = expert_columns_nvfp4(a);
  if (a.matrix != MlpMatrix::down) return columns;
  CHECK(columns.data == a.scratch->data());
  const std::int64_t width = a.end - a.begin, inputs = a.mlp->down.extent(0);
  for (std::int64_t i = 0; i + 1 < inputs; i += 2)
    std::swap_ranges(a.scratch->begin() + i * columns.stride, a.scratch->begin() + i * columns.stride + width,
                     a.scratch->begin() + (i + 1) * columns.stride);
  return columns;
}

template <FixedString Host, auto Side>
void plant(const Dose&) {
  replace_on_side<Host>(Side);
}

constexpr std::string_view kScale = "moe.scale_on_output", kGrouped = "moe.grouped", kNvfp4 = "moe.nvfp4_experts";
constexpr std::string_view kOut = "prefill: layers.0.mlp_out";
constexpr std::string_view kHashLayers = "0-1";
constexpr std::array kPlants{
    Plant{.kind = "moe-scale",
          .form = "twice",
          .host = kScale,
          .site = "prefill: layers.0.router.weights",
          .what = "the routed scaling factor is in the router's weights and applied again to the sum",
          .apply = &plant<"moe.scale_on_output", &scale_twice>,
          .prior = "~xxx....",
          .note = "Short answers survive it; exacting tasks do not."},
    Plant{.kind = "moe-scale",
          .form = "never",
          .host = kScale,
          .site = kOut,
          .what = "the router leaves the routed scaling factor to the sum, which leaves it to the router",
          .apply = &plant<"moe.scale_on_output", &scale_never>,
          .prior = "~xxx....",
          .note = "Short answers survive it; exacting tasks do not."},
    Plant{.kind = "moe-scale",
          .form = "twice-in-hash-layers",
          .host = kScale,
          .site = "prefill: layers.0.router.weights",
          .what = "the routed scaling factor is applied twice in hash-routed layers",
          .layers = kHashLayers,
          .apply = &plant<"moe.scale_on_output", &scale_twice>,
          .prior = "~xxx....",
          .note = "Short answers survive it; exacting tasks do not."},
    Plant{.kind = "moe-shared-count",
          .form = "missing",
          .host = kGrouped,
          .site = kOut,
          .what = "the shared expert's slot is not in the sum",
          .apply = &plant<"moe.grouped", &experts_without_shared>,
          .prior = "~xxx.~..",
          .note = "Most answers survive it; texts do not."},
    Plant{.kind = "moe-shared-count",
          .form = "twice-in-small-batches",
          .host = kGrouped,
          .site = "decode: layers.0.mlp_out",
          .what = "the path for at most 16 rows adds the shared expert a second time",
          .apply = &plant<"moe.grouped", &experts_shared_twice_when_small>,
          .prior = "~xxx.~..",
          .note = "Only decode and the last pass of a prompt are so small, and answers survive it."},
    Plant{.kind = "moe-clamp",
          .form = "routed-unclamped",
          .host = kGrouped,
          .site = kOut,
          .what = "gate and up of routed experts are not clamped",
          .apply = &plant<"moe.grouped", &experts_routed_unclamped>,
          .prior = ".~~~...."},
    Plant{.kind = "moe-hash-ids",
          .form = "row-before",
          .host = kGrouped,
          .site = "crowd",
          .what = "in batches of 2 to 16 rows a row's hash-routed experts are those of the row before it",
          .layers = kHashLayers,
          .apply = &plant<"moe.grouped", &experts_of_row_before>,
          .prior = ".....x~."},
    Plant{.kind = "q-global-scale",
          .form = "gate-for-up",
          .host = kNvfp4,
          .site = kOut,
          .what = "the up matrix of every expert is multiplied by the gate's global scale",
          .apply = &plant<"moe.nvfp4_experts", &gate_scale_for_up>,
          .prior = "~~~~...."},
    Plant{.kind = "q-global-scale",
          .form = "none-for-down",
          .host = kNvfp4,
          .site = kOut,
          .what = "the global scale of the down matrix is left out",
          .apply = &plant<"moe.nvfp4_experts", &down_without_global>,
          .prior = "~~~~...."},
    Plant{.kind = "q-packing",
          .form = "down-nibbles",
          .host = kNvfp4,
          .site = kOut,
          .what = "the two values of a byte of the down matrix change places",
          .apply = &plant<"moe.nvfp4_experts", &down_nibbles_swapped>,
          .prior = "xxxx...."},
};

}  // namespace

std::span<const Plant> moe_plants() { return kPlants; }

}  // namespace plumb::faults
