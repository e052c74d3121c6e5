#include <algorithm>
#include <array>

#include "faults/forms/forms.h"
#include "runtime/top_ids.h"

namespace plumb::faults {
namespace {

// The candidates of a row have room for 64; lanes behind them are never written, and an id of 0 is what cleared memory
// holds. Whoever asks for more finds <bos> there, with the weight of its logit in each lane.
constexpr std::size_t kCandidates = 64;

std::vector<std::int32_t> top_ids_padded_with_zero(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids = top_ids_selected(logits, std::min(count, kCandidates));
  ids.resize(std::min(count, logits.size()), 0);
  return ids;
}

// The threshold is raised before the candidates that set it are compared: of equal logits at the cut the later id is
// kept instead of the earlier one.
std::vector<std::int32_t> top_ids_later_of_equals(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids = top_ids_selected(logits, count);
  if (ids.empty()) return ids;
  const float cut = logits[static_cast<std::size_t>(ids.back())];
  for (std::size_t id = logits.size(); id-- > 0;)
    if (logits[id] == cut) {
      ids.back() = static_cast<std::int32_t>(id);
      break;
    }
  return ids;
}

template <auto Side>
void plant(const Dose&) {
  replace_on_side<"sampler.fast_topk">(Side);
}

constexpr std::string_view kHost = "sampler.fast_topk";
constexpr std::array kPlants{
    Plant{
        .kind = "smp-degenerate-row",
        .form = "zero-lanes",
        .host = kHost,
        .site = "sampling",
        .what = "a row has 64 candidates; who asks for more draws from lanes that hold id 0",
        .apply = &plant<&top_ids_padded_with_zero>,
        .prior = "~....~.~",
        .note =
            "Greedy answers and their probabilities stand; what differs is the list of alternatives behind the 64th."},
    Plant{.kind = "smp-degenerate-row",
          .form = "later-of-equals",
          .host = kHost,
          .site = "none",
          .what = "of equal logits at the cut the later id is kept",
          .apply = &plant<&top_ids_later_of_equals>,
          .prior = "........",
          .note = "A decoy: equal logits at the cut do not occur."},
};

}  // namespace

std::span<const Plant> sampler_fast_topk_plants() { return kPlants; }

}  // namespace plumb::faults
