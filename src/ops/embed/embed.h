#pragma once

#include <cstdint>
#include <span>

#include "base/view.h"

namespace plumb {

/// out[t, :] = table[tokens[t], :]
///
/// tokens [tokens] i32, each in [0, vocab) · table [vocab, d] f32 · out [tokens, d] f32. No scaling.
/// Source: model specification 3.1.
struct Embed {
  std::span<const std::int32_t> tokens;
  View<const float, 2> table;
  View<float, 2> out;
};
void embed_ref(const Embed& a);

}  // namespace plumb
