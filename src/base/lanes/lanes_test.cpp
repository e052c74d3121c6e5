#include "base/lanes/lanes.h"

#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/math.h"
#include "base/rng.h"

namespace plumb {
namespace {

#define PLUMB_KERNELS "base/lanes/lanes_test.inc"
#include "base/lanes/each_isa.inc"

void use(const float* a, const float* b, const float* c, std::int64_t count, float* out) {
  PLUMB_ON_BEST_ISA(use_all(a, b, c, count, out));
}

bool same(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

// The functions one lane at a time.
std::vector<float> expected(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c,
                            std::size_t count, float untouched) {
  std::vector<float> want;
  const auto row = [&](auto&& value) {
    for (std::size_t i = 0; i < 16; ++i) want.push_back(value(i));
  };
  row([&](std::size_t i) { return std::fma(a[i], b[i], c[i]); });
  row([&](std::size_t i) { return a[i] + b[i]; });
  row([&](std::size_t i) { return a[i] - b[i]; });
  row([&](std::size_t i) { return a[i] * b[i]; });
  row([&](std::size_t i) { return a[i] / b[i]; });
  row([&](std::size_t i) { return a[i] > b[i] ? a[i] : b[i]; });
  row([&](std::size_t i) { return a[i] < b[i] ? a[i] : b[i]; });
  row([&](std::size_t i) { return a[i ^ 1]; });
  row([&](std::size_t i) { return math::exp32(a[i]); });
  row([&](std::size_t i) { return i < count ? a[i] : 0.0f; });
  row([&](std::size_t i) { return i < count ? a[i] : untouched; });
  const auto tree = [](const auto& lane) {
    float sums[16];
    for (std::size_t i = 0; i < 16; ++i) sums[i] = lane(i);
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
  };
  row([&](std::size_t) { return tree([&](std::size_t l) { return a[l]; }); });
  row([&](std::size_t i) { return tree([&](std::size_t l) { return std::fma(a[l], b[i], c[l]); }); });
  return want;
}

TEST(Lanes, EveryFunctionHasTheBitsOfItsScalarFormOnEveryInstructionSet) {
  Rng rng{8};
  const float specials[] = {0.0f,
                            -0.0f,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            0x1p-140f,
                            88.8f,
                            -103.9f,
                            1e30f};
  const Isa before = best_isa();
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> operands[3];
    for (auto& values : operands)
      for (int i = 0; i < 16; ++i)
        values.push_back(round % 3 == 0 && rng.below(4) == 0 ? specials[rng.below(std::size(specials))]
                                                             : static_cast<float>(rng.normal() * 30.0));
    const std::size_t count = rng.below(17);
    constexpr float kUntouched = -1234.5f;
    const std::vector<float> want = expected(operands[0], operands[1], operands[2], count, kUntouched);
    for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
      if (!has_isa(isa)) continue;
      force_isa(isa);
      std::vector<float> got(want.size(), kUntouched);
      use(operands[0].data(), operands[1].data(), operands[2].data(), static_cast<std::int64_t>(count), got.data());
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_TRUE(same(got[i], want[i])) << "isa " << static_cast<int>(isa) << ", function " << i / 16 << ", lane "
                                           << i % 16 << ": " << got[i] << ", want " << want[i];
    }
  }
  force_isa(before);
}

}  // namespace
}  // namespace plumb
