#include "tensor/formats.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/safetensors.h"

namespace plumb {
namespace {

// What an independent implementation made of the same values; tests/golden/formats/README.md says how.
class Formats : public testing::Test {
 protected:
  Formats()
      : file_(SafetensorsFile::open(std::string(PLUMB_SOURCE_DIR) + "/tests/golden/formats/formats.safetensors")) {}
  std::vector<float> f32(const char* name) { return *file_->read_f32(name); }
  std::vector<std::uint8_t> u8(const char* name) { return *file_->read_u8(name); }
  Result<SafetensorsFile> file_;
};

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST_F(Formats, RoundingsAreThoseOfAnIndependentImplementation) {
  ASSERT_TRUE(file_.has_value());
  const std::vector<float> x = f32("x");
  const std::vector<std::int32_t> bf16 = *file_->read_i32("bf16");
  const std::vector<std::uint8_t> e4m3 = u8("e4m3"), e2m1 = u8("e2m1");
  ASSERT_GT(x.size(), 5000u);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(f32_to_bf16(x[i]), bf16[i]) << x[i];
    EXPECT_TRUE(same(round_to_bf16(x[i]), bf16_to_f32(static_cast<std::uint16_t>(bf16[i])))) << x[i];
    EXPECT_EQ(f32_to_e4m3(x[i]), e4m3[i]) << x[i];
    EXPECT_EQ(f32_to_e2m1(x[i]), e2m1[i]) << x[i];
  }
}

TEST_F(Formats, CodesHaveTheValuesOfAnIndependentImplementation) {
  ASSERT_TRUE(file_.has_value());
  const std::vector<float> e4m3 = f32("e4m3_values"), e2m1 = f32("e2m1_values"), e8m0 = f32("e8m0_values");
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_TRUE(same(e4m3_to_f32(byte), e4m3[static_cast<std::size_t>(code)])) << code;
    EXPECT_TRUE(same(e8m0_to_f32(byte), e8m0[static_cast<std::size_t>(code)])) << code;
    EXPECT_TRUE(same(e2m1_to_f32(byte), e2m1[static_cast<std::size_t>(code) % 16])) << code;
    if ((code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(byte)), byte);
  }
}

TEST_F(Formats, ScalesAreTheNextPowerOfTwoAlsoOneStepAroundOne) {
  ASSERT_TRUE(file_.has_value());
  const std::vector<float> positive = f32("positive"), ceiling = f32("ceiling");
  for (std::size_t i = 0; i < positive.size(); ++i)
    EXPECT_EQ(e8m0_to_f32(e8m0_ceil(positive[i])), ceiling[i]) << positive[i];
  for (int exponent = -125; exponent <= 126; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    EXPECT_EQ(e8m0_to_f32(e8m0_ceil(power)), power);
    EXPECT_EQ(e8m0_to_f32(e8m0_ceil(std::nextafter(power, 0.0f))), power);
    EXPECT_EQ(e8m0_to_f32(e8m0_ceil(std::nextafter(power, kE4m3Max * power))), 2 * power);
  }
}

TEST(FormatsOfSpecialValues, AreSaturatedOrNotANumber) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(f32_to_e4m3(1e30f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(-1e30f), 0xfe);
  for (const float value : {inf, -inf, nan}) EXPECT_TRUE(std::isnan(e4m3_to_f32(f32_to_e4m3(value)))) << value;
  for (const float value : {inf, nan}) EXPECT_TRUE(std::isnan(e8m0_to_f32(e8m0_ceil(value)))) << value;
  EXPECT_EQ(f32_to_e2m1(inf), 7);
  EXPECT_EQ(f32_to_e2m1(-1e30f), 15);
  const std::vector<float> values{-3.0f, inf, nan, 2.0f};
  EXPECT_EQ(finite_amax(values), 3.0f);
  EXPECT_EQ(finite_amax({}), 0.0f);
}

}  // namespace
}  // namespace plumb
