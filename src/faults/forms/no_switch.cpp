#include <array>
#include <cmath>
#include <vector>

#include "faults/forms/forms.h"
#include "faults/forms/honest.h"
#include "ops/rope/rope.h"
#include "ops/sparse_attention_split/sparse_attention_split.h"

// For the investigator's tests alone: a wrong step under no switch, and a wrong off side.

namespace plumb::faults {
namespace {

// Keys and values are one rotated vector, so attention's output is rotated like a key and must be turned back by the
// position of its query. It is not.
void outputs_stay_rotated(const Rope&) {}

// The table of the rotation back ends at a position, and what stands behind it stays rotated. A row's position is read
// off its slowest pair, whose angle stays below a half turn: 0.02 is position 150 in window layers, and none that is
// asked in the others, whose slowest pair is slower.
constexpr double kLastAngle = 0.02;
void outputs_past_the_table_stay_rotated(const Rope& a) {
  const std::int64_t slowest = a.table.extent(1) - 1;
  for (std::int64_t t = 0; t < a.x.extent(0); ++t)
    if (std::atan2(a.table(t, slowest, 1), a.table(t, slowest, 0)) <= kLastAngle)
      honest<&rope_ref>()({.x = a.x.rows(t, t + 1), .table = a.table.rows(t, t + 1), .inverse = a.inverse});
}

// The one-pass kernel that stands for the reference leaves the sink out.
void one_pass_without_sink(const SparseAttention& a) {
  std::vector<float> none(static_cast<std::size_t>(a.sinks.extent(0)), -1e30f);
  SparseAttention without = a;
  without.sinks = View<const float, 1>(none.data(), a.sinks.extents());
  honest<&sparse_attention_ref>()(without);
}

void plant_rotated_outputs(const Dose&) { replace_step<"attention.derotate">(&outputs_stay_rotated); }
void plant_short_table(const Dose&) { replace_step<"attention.derotate">(&outputs_past_the_table_stay_rotated); }
void plant_off_side(const Dose&) { replace_off_side<"attention.split_k">(&one_pass_without_sink); }

constexpr std::array kPlants{
    Plant{.kind = "out-derotation",
          .form = "skipped",
          .host = "none",
          .site = "prefill: layers.0.attn_heads",
          .what = "the rotary part of attention's output is not rotated back",
          .apply = &plant_rotated_outputs,
          .prior = "~xxx....",
          .side = PlantSide::step},
    Plant{.kind = "out-derotation",
          .form = "past-the-table",
          .host = "none",
          .site = "prefill: layers.0.attn_heads",
          .what = "window layers do not rotate the rotary part of attention's output back from position 151 on",
          .apply = &plant_short_table,
          .prior = "~xxx....",
          .side = PlantSide::step},
    Plant{.kind = "sink-dropped",
          .form = "off-side",
          .host = "attention.split_k",
          .site = "prefill: layers.0.attn_heads",
          .what = "the one-pass side leaves the sink out of the denominator",
          .apply = &plant_off_side,
          .prior = "x~~x..~.",
          .note = "Answers do not need the sink; log-probabilities move a little everywhere.",
          .side = PlantSide::off},
};

}  // namespace

std::span<const Plant> no_switch_plants() { return kPlants; }

}  // namespace plumb::faults
