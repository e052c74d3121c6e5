#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/rng.h"
#include "faults/forms/forms.h"
#include "runtime/step_plan.h"

namespace plumb::faults {
namespace {

// A kept plan is replayed with the inputs of as many rows as the captured bucket has, a power of two. The rows behind
// it keep the tokens they had when the plan was made.
void replay_a_bucket_of_rows(const PlanStep& step) {
  StepPlan& plan = *step.plan;
  const std::vector<std::int32_t> captured = plan.inputs;
  reuse_plan(step);
  if (!plan.reused) return;
  for (std::size_t i = std::bit_floor(plan.inputs.size()); i < plan.inputs.size(); ++i) plan.inputs[i] = captured[i];
}

// Tokens that were drawn wait in one slot a row of the batch. When a row is given to another sequence while the step
// before is still read, the sequence takes the token of who had the row.
struct Slot {
  std::uint64_t sequence = 0;  // 0: none yet
  std::int32_t token = 0;
};
struct Slots {
  std::vector<Slot> rows;
  double probability = 1;
  std::uint64_t seed = 0;
  std::uint64_t recycled = 0;
};
Slots slots;

void take_tokens_from_slots(const PlanStep& step) {
  reuse_plan(step);
  StepPlan& plan = *step.plan;
  slots.rows.resize(std::max(slots.rows.size(), plan.members.size()));
  std::size_t at = 0;
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const Sequence& member = *plan.members[i];
    Slot& slot = slots.rows[i];
    const bool left = std::ranges::none_of(step.running, [&](const auto& s) { return s->id == slot.sequence; });
    const bool recycled = slot.sequence != 0 && slot.sequence != member.id && left && !member.prefilling();
    const std::int32_t own = plan.inputs[at];
    if (recycled && Rng(mix64(slots.seed ^ ++slots.recycled)).uniform() < slots.probability)
      plan.inputs[at] = slot.token;
    slot = {member.id, own};
    at += static_cast<std::size_t>(member.next_tokens);
  }
}

constexpr double kRecycledLate = 0.5;

template <bool Always>
void plant_slots(const Dose& dose) {
  slots = {.rows = {},
           .probability = Always ? 1 : std::min(1.0, kRecycledLate * dose.severity),
           .seed = mix64(dose.seed) ^ dose.launch,
           .recycled = 0};
  replace_on_side<"decode.plan_reuse">(&take_tokens_from_slots);
}

void plant_bucket(const Dose&) { replace_on_side<"decode.plan_reuse">(&replay_a_bucket_of_rows); }

constexpr std::string_view kHost = "decode.plan_reuse";
constexpr std::array kPlants{
    Plant{.kind = "graph-stale-metadata",
          .form = "rows-behind-the-bucket",
          .host = kHost,
          .site = "crowd",
          .what = "a replayed step has new inputs for a power of two of rows; those behind keep the captured ones",
          .apply = &plant_bucket,
          .prior = ".....~x~",
          .note = "One sequence alone fills its bucket, so D agrees."},
    Plant{.kind = "row-recycled",
          .form = "token-of-last-owner",
          .host = kHost,
          .site = "crowd",
          .what = "a sequence that gets the row of one that left takes that one's pending token once",
          .apply = &plant_slots<true>,
          .prior = ".....x.~"},
    Plant{.kind = "row-recycled",
          .form = "by-chance",
          .host = kHost,
          .site = "crowd",
          .what = "the same, half of the times",
          .apply = &plant_slots<false>,
          .prior = ".....x.~"},
};

}  // namespace

std::span<const Plant> decode_plan_reuse_plants() { return kPlants; }

}  // namespace plumb::faults
