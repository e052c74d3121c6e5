#include "weights/block_formats.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/formats.h"

namespace plumb {
namespace {

constexpr float kLeastE4m3 = 0x1p-9f;

std::int64_t blocks_of(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

/// The E8M0 code of the smallest power of two not below amax / most, 1 for amax 0.
std::uint8_t power_scale(float amax, float most) {
  constexpr std::uint8_t kOne = 127;
  return amax == 0.0f ? kOne : e8m0_ceil(amax / most);
}

/// Packs the codes of one FP4 block of a row: columns from `column` on, each value / step. `row` is the packed row.
void pack_fp4(std::span<const float> block, float step, std::int64_t column, std::uint8_t* row) {
  for (const float value : block) {
    const std::uint8_t code = step > 0.0f ? f32_to_e2m1(value / step) : std::uint8_t{0};
    row[column / 2] = static_cast<std::uint8_t>(row[column / 2] | code << (column % 2 * 4));
    ++column;
  }
}

/// One scale and the codes of each block: `scale_of` gives a block's stored scale, `step_of` what one unit of a code
/// stands for then.
template <class ScaleOf, class StepOf>
BlockCodes encode_fp4(std::span<const float> values, MatrixShape matrix, std::int64_t block_columns,
                      const ScaleOf& scale_of, const StepOf& step_of) {
  CHECK(matrix.columns % 2 == 0 && std::ssize(values) == matrix.count());
  BlockCodes to;
  to.codes.assign(size_of(matrix.count() / 2), 0);
  to.scales.reserve(size_of(matrix.rows * blocks_of(matrix.columns, block_columns)));
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < matrix.columns; j += block_columns) {
      const std::int64_t count = std::min(block_columns, matrix.columns - j);
      const auto block = values.subspan(size_of(i * matrix.columns + j), size_of(count));
      const std::uint8_t scale = scale_of(finite_amax(block));
      to.scales.push_back(scale);
      pack_fp4(block, step_of(scale), j, to.codes.data() + i * (matrix.columns / 2));
    }
  return to;
}

}  // namespace

MatrixShape scale_shape(MatrixShape matrix, BlockShape block) {
  return {blocks_of(matrix.rows, block.rows), blocks_of(matrix.columns, block.columns)};
}

void decode_fp8(std::span<const std::uint8_t> codes, std::span<const float> scales, MatrixShape matrix,
                BlockShape block, std::span<float> out) {
  const MatrixShape grid = scale_shape(matrix, block);
  CHECK(std::ssize(codes) == matrix.count() && std::ssize(scales) == grid.count() && out.size() == codes.size());
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < matrix.columns; ++j) {
      const std::size_t at = size_of(i * matrix.columns + j);
      out[at] = e4m3_to_f32(codes[at]) * scales[size_of(i / block.rows * grid.columns + j / block.columns)];
    }
}

void decode_fp4(std::span<const std::uint8_t> codes, std::span<const float> scales, MatrixShape matrix,
                std::int64_t block_columns, float global, std::span<float> out) {
  const std::int64_t blocks = blocks_of(matrix.columns, block_columns);
  CHECK(matrix.columns % 2 == 0 && std::ssize(codes) * 2 == matrix.count());
  CHECK(std::ssize(scales) == matrix.rows * blocks && std::ssize(out) == matrix.count());
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < matrix.columns; ++j) {
      const std::size_t at = size_of(i * matrix.columns + j);
      const auto code = static_cast<std::uint8_t>(codes[at / 2] >> (j % 2 * 4));
      out[at] = e2m1_to_f32(code) * scales[size_of(i * blocks + j / block_columns)] * global;
    }
}

BlockCodes encode_fp8(std::span<const float> values, MatrixShape matrix, BlockShape block) {
  CHECK(std::ssize(values) == matrix.count());
  BlockCodes to;
  to.codes.resize(values.size());
  const auto row = [&](std::int64_t i, std::int64_t j, std::int64_t count) {
    return values.subspan(size_of(i * matrix.columns + j), size_of(count));
  };
  for (std::int64_t i0 = 0; i0 < matrix.rows; i0 += block.rows)
    for (std::int64_t j0 = 0; j0 < matrix.columns; j0 += block.columns) {
      const std::int64_t i1 = std::min(i0 + block.rows, matrix.rows),
                         count = std::min(block.columns, matrix.columns - j0);
      float amax = 0.0f;
      for (std::int64_t i = i0; i < i1; ++i) amax = std::max(amax, finite_amax(row(i, j0, count)));
      to.scales.push_back(power_scale(amax, kE4m3Max));
      const float step = e8m0_to_f32(to.scales.back());
      for (std::int64_t i = i0; i < i1; ++i)
        std::ranges::transform(row(i, j0, count), to.codes.begin() + i * matrix.columns + j0,
                               [step](float value) { return f32_to_e4m3(value / step); });
    }
  return to;
}

BlockCodes encode_mxfp4(std::span<const float> values, MatrixShape matrix) {
  return encode_fp4(
      values, matrix, kMxfp4Columns, [](float amax) { return power_scale(amax, kE2m1Max); },
      [](std::uint8_t scale) { return e8m0_to_f32(scale); });
}

float nvfp4_global(float amax) {
  const float global = amax / (kE2m1Max * kE4m3Max);
  return global > 0.0f ? global : 1.0f;
}

BlockCodes encode_nvfp4(std::span<const float> values, MatrixShape matrix, float global) {
  const auto scale_of = [global](float amax) {
    return amax == 0.0f ? f32_to_e4m3(1.0f) : f32_to_e4m3(std::max(amax / (kE2m1Max * global), kLeastE4m3));
  };
  return encode_fp4(values, matrix, kNvfp4Columns, scale_of,
                    [global](std::uint8_t scale) { return e4m3_to_f32(scale) * global; });
}

}  // namespace plumb
