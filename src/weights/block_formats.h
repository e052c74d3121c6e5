#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"

namespace plumb {

// Weight matrices as files store them in few bits: [rows, columns] = [out, in], row-major, one scale for each block.
// Blocks at the border are smaller. In FP4 a byte holds columns 2t (low nibble) and 2t + 1 (high nibble) of a row.
// Source: model specification 5.1, 5.3, 5.4; where it is silent, the comments say what was chosen.

/// Columns of a row that share a scale.
inline constexpr std::int64_t kMxfp4Columns = 32;
inline constexpr std::int64_t kNvfp4Columns = 16;

/// Extents of a matrix.
struct MatrixShape {
  std::int64_t rows;
  std::int64_t columns;

  std::int64_t count() const { return rows * columns; }
};

/// Scales that a matrix has along each extent: those of its whole blocks and one of the rest.
MatrixShape scale_shape(MatrixShape matrix, BlockShape block);

/// out[i, j] = e4m3(codes[i, j]) * scales[i / block.rows, j / block.columns].
/// codes [rows, columns] E4M3, scales scale_shape(matrix, block) f32, out [rows, columns] f32. The product is rounded
/// to f32 once; with a power of two as scale it is exact.
void decode_fp8(std::span<const std::uint8_t> codes, std::span<const float> scales, MatrixShape matrix,
                BlockShape block, std::span<float> out);

/// out[i, j] = (e2m1(nibble i, j) * scales[i, j / block_columns]) * global.
/// codes [rows, columns / 2], scales [rows, ceil(columns / block_columns)] f32, out [rows, columns] f32; columns are
/// even. MXFP4: blocks of 32, power-of-two scales, global 1: exact. NVFP4: blocks of 16, E4M3 scales, so the first
/// product is exact and the second rounded to f32 once.
void decode_fp4(std::span<const std::uint8_t> codes, std::span<const float> scales, MatrixShape matrix,
                std::int64_t block_columns, float global, std::span<float> out);

/// Codes with the stored bytes of their scales.
struct BlockCodes {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
};

/// FP8: the scale of a block (E8M0) is the smallest power of two not below amax / 448, and 1 for a block of zeros; each
/// code is the nearest, ties to even. No value is clipped. What was decoded from such codes encodes to the same values.
/// The specification fixes the format, not how a weight's scale is chosen: this is its rule for activations.
BlockCodes encode_fp8(std::span<const float> values, MatrixShape matrix, BlockShape block);

/// MXFP4: as encode_fp8 with blocks of 32 columns and amax / 6. columns are even.
BlockCodes encode_mxfp4(std::span<const float> values, MatrixShape matrix);

/// The second level of NVFP4's scales: amax / (6 * 448), and 1 for a matrix of zeros.
float nvfp4_global(float amax);

/// NVFP4: the scale of a block is the E4M3 nearest to amax / (6 * global), at least 2^-9 (the smallest E4M3 above
/// zero) and 1 for a block of zeros; each code is the nearest to value / (scale * global), ties to even. `global` is
/// nvfp4_global of the largest magnitude of this matrix, or of a larger one. columns are even.
BlockCodes encode_nvfp4(std::span<const float> values, MatrixShape matrix, float global);

}  // namespace plumb
