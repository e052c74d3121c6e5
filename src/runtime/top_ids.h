#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "switches/on_side.h"

namespace plumb {

/// The ids of the `count` largest logits (all of them when there are fewer), by descending logit, then ascending id.
/// `logits` [vocab] f32, none NaN.
///
/// The reference sorts the whole vocabulary.
std::vector<std::int32_t> top_ids_sorted(std::span<const float> logits, std::size_t count);

/// The same ids in the same order from one pass: a logit joins the candidates when it is above the threshold; when
/// there are twice `count` of them they are cut to the best `count`, the last of which is the new threshold. Candidates
/// arrive in ascending id, so one that equals the threshold ranks behind it.
std::vector<std::int32_t> top_ids_selected(std::span<const float> logits, std::size_t count);

template <>
struct Sides<"sampler.fast_topk"> {
  static constexpr auto* off = &top_ids_sorted;
  static constexpr auto* on = &top_ids_selected;
};

}  // namespace plumb
