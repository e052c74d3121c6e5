#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "runtime/sequence.h"
#include "switches/on_side.h"

namespace plumb {

/// The forward pass that is computed next: who takes part, with which tokens, in which order.
struct StepPlan {
  std::vector<Sequence*> members;
  std::vector<std::int32_t> inputs;  // the tokens of all members, in their order
  std::vector<BatchSequence> rows;   // one a member; their tokens lie in `inputs`
  const Settings* settings = nullptr;
  std::uint64_t set_version = 0;  // of the running set it was made for
  bool reusable = false;          // every running sequence decodes: the next plan is this one with other inputs
  bool reused = false;            // this plan is the last one with other inputs
  // Further steps for which every member has its pages. Whoever provides pages sets it; a new plan has none.
  std::int64_t steps_with_pages = 0;
};

/// What a plan is made from. `running` is not empty; settings of its sequences may differ.
struct PlanStep {
  StepPlan* plan;
  std::span<const std::unique_ptr<Sequence>> running;
  std::uint64_t set_version;  // changes whenever a sequence joins or leaves `running`
  std::int64_t chunk_tokens;
  std::int64_t most_snapshots;  // of one sequence in one pass
  const StateLayout* layout;
};

/// The sequence that must take part in the next pass: the one that waited longest, the oldest among equals. So between
/// two passes of a running sequence there are at most as many others as there are running sequences.
Sequence& longest_waiting(std::span<const std::unique_ptr<Sequence>> running);

/// Plans from scratch. One settings vector a pass: that of the longest waiting sequence, which always takes part.
/// Beside it every sequence with the same settings that decodes, one token each, and prompts in order of waiting for as
/// long as fewer than chunk_tokens are planned. A prompt gets what prefill.chunked gives it.
void build_plan(const PlanStep& step);

/// Keeps the last plan when it is reusable and the running set is the same: only the inputs change. Else builds.
void reuse_plan(const PlanStep& step);

template <>
struct Sides<"decode.plan_reuse"> {
  static constexpr auto* off = &build_plan;
  static constexpr auto* on = &reuse_plan;
};

}  // namespace plumb
