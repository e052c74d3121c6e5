#pragma once

#include <cstdint>
#include <vector>

#include "base/view.h"

namespace plumb {

/// Inputs that share one scale.
inline constexpr std::int64_t kNvfp4Block = 16;

/// A weight matrix [in, out] in NVFP4: W[k, o] = e2m1(code k of output o) * e4m3(scales[k / 16, o]) * global, the two
/// factors of few bits multiplied first (exact), the product with `global` rounded to f32 once.
struct Nvfp4Matrix {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::vector<std::uint8_t> codes;   // [ceil(in / 2)][out]: two inputs a byte, the even one in the low nibble
  std::vector<std::uint8_t> scales;  // [ceil(in / 16)][out] E4M3
  float global = 1.0f;
};

/// Quantises: global = amax / (6 * 448) (1 for a matrix of zeros), a block's scale the E4M3 nearest to its amax / 6 /
/// global, codes the nearest. A block with a value that is not finite has a NaN scale; the last block may be shorter.
/// Source: model specification 5.3, 5.4.
Nvfp4Matrix quantise_nvfp4(View<const float, 2> weight);

/// out [in][end - begin] f32 = columns [begin, end).
void dequantise_nvfp4(const Nvfp4Matrix& matrix, std::int64_t begin, std::int64_t end, float* out);

}  // namespace plumb
