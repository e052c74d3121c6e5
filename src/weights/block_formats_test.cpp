#include "weights/block_formats.h"

#include <bit>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tensor/formats.h"
#include "tensor/safetensors.h"

namespace plumb {
namespace {

constexpr BlockShape kRelease{128, 128};

// What numpy and ml_dtypes make of the same matrices; tests/golden/exports/README.md says how.
class BlockFormats : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(file_) << file_.error().message; }

  std::vector<float> f32(const std::string& name) { return *file_->read_f32(name); }
  /// Stored bytes of any one-byte dtype.
  std::vector<std::uint8_t> bytes(const std::string& name) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(file_->find(name)->bytes.data());
    return {first, first + file_->find(name)->bytes.size()};
  }
  std::vector<float> scales(const std::string& name, float (*value_of)(std::uint8_t)) {
    std::vector<float> values;
    for (const std::uint8_t code : bytes(name)) values.push_back(value_of(code));
    return values;
  }
  MatrixShape shape(const std::string& name) {
    const auto& extents = file_->find(name)->shape;
    return {extents[0], extents[1]};
  }
  std::string at(const char* rest) const { return name_ + rest; }

  const Result<SafetensorsFile> file_ =
      SafetensorsFile::open(std::string(PLUMB_SOURCE_DIR) + "/tests/golden/exports/blocks.safetensors");
  std::string name_;
};

void expect_same(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i])) << what << " element " << i;
}

const char* const kMatrices[] = {"wide", "low", "one", "whole", "ties"};

TEST_F(BlockFormats, Fp8IsWhatAnIndependentImplementationMakes) {
  for (const char* name : kMatrices) {
    name_ = name;
    const MatrixShape matrix = shape(name);
    const BlockCodes got = encode_fp8(f32(name), matrix, kRelease);
    EXPECT_EQ(got.codes, bytes(at(".fp8.weight"))) << name;
    EXPECT_EQ(got.scales, bytes(at(".fp8.scale"))) << name;
    std::vector<float> values(got.codes.size());
    decode_fp8(bytes(at(".fp8.weight")), scales(at(".fp8.scale"), e8m0_to_f32), matrix, kRelease, values);
    expect_same(values, f32(at(".fp8.values")), at(".fp8"));
  }
}

TEST_F(BlockFormats, Mxfp4IsWhatAnIndependentImplementationMakes) {
  for (const char* name : kMatrices) {
    name_ = name;
    const MatrixShape matrix = shape(name);
    const BlockCodes got = encode_mxfp4(f32(name), matrix);
    EXPECT_EQ(got.codes, bytes(at(".mxfp4.weight"))) << name;
    EXPECT_EQ(got.scales, bytes(at(".mxfp4.scale"))) << name;
    std::vector<float> values(got.codes.size() * 2);
    decode_fp4(bytes(at(".mxfp4.weight")), scales(at(".mxfp4.scale"), e8m0_to_f32), matrix, kMxfp4Columns, 1, values);
    expect_same(values, f32(at(".mxfp4.values")), at(".mxfp4"));
  }
}

TEST_F(BlockFormats, Nvfp4IsWhatAnIndependentImplementationMakes) {
  for (const char* name : kMatrices) {
    name_ = name;
    const MatrixShape matrix = shape(name);
    const float global = nvfp4_global(finite_amax(f32(name)));
    EXPECT_EQ(global, f32(at(".nvfp4.weight_scale_2")).front());
    const BlockCodes got = encode_nvfp4(f32(name), matrix, global);
    EXPECT_EQ(got.codes, bytes(at(".nvfp4.weight"))) << name;
    EXPECT_EQ(got.scales, bytes(at(".nvfp4.weight_scale"))) << name;
    std::vector<float> values(got.codes.size() * 2);
    decode_fp4(bytes(at(".nvfp4.weight")), scales(at(".nvfp4.weight_scale"), e4m3_to_f32), matrix, kNvfp4Columns,
               global, values);
    expect_same(values, f32(at(".nvfp4.values")), at(".nvfp4"));
  }
}

TEST_F(BlockFormats, CodesOfAnyOriginAreDecoded) {
  std::vector<float> values(12 * 128);
  decode_fp4(bytes("any.mxfp4.weight"), scales("any.mxfp4.scale", e8m0_to_f32), {12, 128}, kMxfp4Columns, 1, values);
  expect_same(values, f32("any.mxfp4.values"), "any.mxfp4");
  std::vector<float> eight(12 * 64);
  decode_fp8(bytes("any.fp8.weight"), f32("any.fp8.scale"), {12, 64}, {8, 40}, eight);
  expect_same(eight, f32("any.fp8.values"), "any.fp8");
}

// A checkpoint that is exported twice must not drift: what a block format can hold, it holds.
TEST(BlockFormatsTwice, DecodedValuesEncodeToThemselves) {
  Rng rng{7};
  const MatrixShape matrix{70, 138};
  std::vector<float> values(static_cast<std::size_t>(matrix.count()));
  for (float& value : values)
    value = std::ldexp(static_cast<float>(rng.uniform() - 0.5), static_cast<int>(rng.below(12)));
  const auto e8m0 = [](const std::vector<std::uint8_t>& codes) {
    std::vector<float> scales;
    for (const std::uint8_t code : codes) scales.push_back(e8m0_to_f32(code));
    return scales;
  };
  const BlockShape block{32, 64};
  std::vector<float> once(values.size()), twice(values.size());
  const BlockCodes fp8 = encode_fp8(values, matrix, block);
  decode_fp8(fp8.codes, e8m0(fp8.scales), matrix, block, once);
  const BlockCodes fp8_again = encode_fp8(once, matrix, block);
  decode_fp8(fp8_again.codes, e8m0(fp8_again.scales), matrix, block, twice);
  expect_same(twice, once, "fp8");
  const BlockCodes fp4 = encode_mxfp4(values, matrix);
  decode_fp4(fp4.codes, e8m0(fp4.scales), matrix, kMxfp4Columns, 1, once);
  const BlockCodes fp4_again = encode_mxfp4(once, matrix);
  decode_fp4(fp4_again.codes, e8m0(fp4_again.scales), matrix, kMxfp4Columns, 1, twice);
  expect_same(twice, once, "mxfp4");
}

TEST(BlockFormatsShapes, TheLastBlockMayBeSmaller) {
  const auto extents = [](MatrixShape matrix, BlockShape block) {
    const MatrixShape grid = scale_shape(matrix, block);
    return std::pair(grid.rows, grid.columns);
  };
  EXPECT_EQ(extents({128, 256}, kRelease), std::pair(std::int64_t{1}, std::int64_t{2}));
  EXPECT_EQ(extents({129, 64}, kRelease), std::pair(std::int64_t{2}, std::int64_t{1}));
  EXPECT_EQ(extents({192, 257}, kRelease), std::pair(std::int64_t{2}, std::int64_t{3}));
  EXPECT_EQ(extents({3, 33}, {1, 32}), std::pair(std::int64_t{3}, std::int64_t{2}));
}

}  // namespace
}  // namespace plumb
