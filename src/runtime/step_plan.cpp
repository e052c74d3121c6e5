#include "runtime/step_plan.h"

#include <algorithm>

#include "base/check.h"

namespace plumb {
namespace {

bool waited_longer(const Sequence* a, const Sequence* b) {
  return a->last_pass != b->last_pass ? a->last_pass < b->last_pass : a->id < b->id;
}

// Tails are taken at every page border that the pass crosses; at the last ones, when more would not fit the cache.
void place_snapshots(Sequence& sequence, std::int64_t most) {
  sequence.snapshots.clear();
  if (!sequence.request.settings.on(switch_index("prefix_cache"))) return;
  const std::int64_t begin = sequence.pages.state.length, end = begin + sequence.next_tokens;
  const std::int64_t last = (end - 1) / kPageTokens;
  const std::int64_t count = std::min(last - begin / kPageTokens, most);
  sequence.snapshot_open.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    sequence.snapshots.push_back(
        {(last - count + 1 + i) * kPageTokens, &sequence.snapshot_open[static_cast<std::size_t>(i)]});
}

void choose_members(const PlanStep& step) {
  StepPlan& plan = *step.plan;
  Sequence& leader = longest_waiting(step.running);
  const Settings& settings = leader.request.settings;
  plan.settings = &settings;
  std::int64_t planned = 0;
  const auto take_part = [&](Sequence& sequence) {
    sequence.next_tokens = 1;
    if (sequence.prefilling()) {
      const PrefillStep prefill{step.layout, &sequence.pages.state, sequence.prefill_end, step.chunk_tokens};
      sequence.next_tokens = chosen_side<"prefill.chunked">(settings, prefill);
    }
    planned += sequence.next_tokens;
    plan.members.push_back(&sequence);
  };
  take_part(leader);
  std::vector<Sequence*> prompts;
  for (const auto& sequence : step.running) {
    if (sequence.get() == &leader || !(sequence->request.settings == settings)) continue;
    if (sequence->prefilling())
      prompts.push_back(sequence.get());
    else
      take_part(*sequence);
  }
  std::ranges::sort(prompts, waited_longer);
  for (Sequence* sequence : prompts)
    if (planned < step.chunk_tokens) take_part(*sequence);
}

}  // namespace

Sequence& longest_waiting(std::span<const std::unique_ptr<Sequence>> running) {
  CHECK(!running.empty());
  return **std::ranges::min_element(running,
                                    [](const auto& a, const auto& b) { return waited_longer(a.get(), b.get()); });
}

void build_plan(const PlanStep& step) {
  StepPlan& plan = *step.plan;
  plan = {};
  plan.set_version = step.set_version;
  choose_members(step);
  plan.reusable = plan.members.size() == step.running.size();
  for (Sequence* sequence : plan.members) {
    const auto begin = sequence->tokens.begin() + sequence->pages.state.length;
    plan.inputs.insert(plan.inputs.end(), begin, begin + sequence->next_tokens);
    plan.reusable &= !sequence->prefilling();
    place_snapshots(*sequence, step.most_snapshots);
  }
  std::size_t first = 0;
  for (Sequence* sequence : plan.members) {
    const auto count = static_cast<std::size_t>(sequence->next_tokens);
    plan.rows.push_back({.state = &sequence->pages.state,
                         .tokens = std::span(plan.inputs).subspan(first, count),
                         .all_logits = sequence->scoring(),
                         .observer = nullptr,
                         .snapshots = sequence->snapshots});
    first += count;
  }
}

void reuse_plan(const PlanStep& step) {
  StepPlan& plan = *step.plan;
  if (!plan.reusable || plan.set_version != step.set_version) return build_plan(step);
  plan.reused = true;
  for (std::size_t i = 0; i < plan.members.size(); ++i) plan.inputs[i] = plan.members[i]->tokens.back();
}

}  // namespace plumb
