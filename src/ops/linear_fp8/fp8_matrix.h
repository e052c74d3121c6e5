#pragma once

#include <cstdint>
#include <vector>

#include "base/view.h"

namespace plumb {

/// Weights (and, along a row, activations) that share one scale: 128 x 128, 128.
inline constexpr std::int64_t kFp8Block = 128;

/// A weight matrix [in, out] in FP8: W[k, o] = e4m3(codes[k, o]) * 2^(scales[k / 128, o / 128] - 127), exact in f32.
struct Fp8Matrix {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::vector<std::uint8_t> codes;   // [in][out] E4M3
  std::vector<std::uint8_t> scales;  // [ceil(in / 128)][ceil(out / 128)] E8M0
};

/// Quantises: the scale of a block is the smallest power of two not below amax / 448 (2^-126 for a block of zeros),
/// codes are the nearest; what is not finite becomes NaN. Blocks at the border are smaller.
/// Source: model specification 5.1, 5.4 (the release's block format, scales UE8M0).
Fp8Matrix quantise_fp8(View<const float, 2> weight);

/// out [in][end - begin] f32 = columns [begin, end).
void dequantise_fp8(const Fp8Matrix& matrix, std::int64_t begin, std::int64_t end, float* out);

/// out [rows][width] f32 = x as the release rounds the input of an FP8 linear layer: in groups of 128 along a row,
/// scale = the smallest power of two not below max(amax, 1e-4) / 448, values E4M3 of x / scale, times scale.
/// Source: model specification 2.3 (act128).
void round_activations_fp8(View<const float, 2> x, float* out);

}  // namespace plumb
