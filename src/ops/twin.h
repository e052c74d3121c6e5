#pragma once

// For tests only: comparing an on side with its reference twin.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/isa.h"
#include "base/rng.h"
#include "base/view.h"
#include "switches/switches.h"

namespace plumb {

/// A test's random f32 tensor data: standard normal times `scale`.
inline std::vector<float> random_floats(Rng& rng, std::int64_t count, double scale = 1.0) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(scale * rng.normal());
  return values;
}

/// Runs body(isa) under each instruction set that this processor has.
template <class Body>
void for_each_isa(Body&& body) {
  const Isa before = best_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!has_isa(isa)) continue;
    force_isa(isa);
    body(isa);
  }
  force_isa(before);
}

/// Output memory between two guards, filled with a pattern that no op writes by accident.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t count) : data_(static_cast<std::size_t>(count + 2 * kGuard)) {
    std::memset(data_.data(), kPattern, data_.size() * sizeof(T));
  }
  T* data() { return data_.data() + kGuard; }
  std::span<const T> values() const { return std::span(data_).subspan(kGuard, data_.size() - 2 * kGuard); }
  bool guards_intact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(data_.data());
    for (std::size_t i = 0; i < kGuard * sizeof(T); ++i)
      if (bytes[i] != kPattern || bytes[data_.size() * sizeof(T) - 1 - i] != kPattern) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kPattern = 0xa5;
  std::vector<T> data_;
};

/// Squared error over squared size.
inline double nmse(std::span<const float> got, std::span<const float> want) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(want[i])) continue;
    const double d = static_cast<double>(got[i]) - want[i];
    error += d * d;
    size += static_cast<double>(want[i]) * want[i];
  }
  return size > 0 ? error / size : error;
}

// Rounding errors fall both ways, up and down as well as away from zero and towards it; a truncation or a lost term
// does not. Five standard deviations of a fair coin.
inline testing::AssertionResult not_one_sided(std::span<const float> got, std::span<const float> want) {
  double up = 0, away = 0, count = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(want[i]) || got[i] == want[i]) continue;
    ++count;
    up += got[i] > want[i];
    away += std::abs(got[i]) > std::abs(want[i]);
  }
  const double slack = 2.5 * std::sqrt(count);
  if (count >= 64 && (std::abs(up - count / 2) > slack || std::abs(away - count / 2) > slack))
    return testing::AssertionFailure() << "one-sided: of " << count << " differences " << up << " up, " << away
                                       << " away from zero";
  return testing::AssertionSuccess();
}

inline testing::AssertionResult twin(const OpBudget& budget, Guarded<float>& result, std::span<const float> want) {
  const std::span<const float> got = result.values();
  if (got.size() != want.size()) return testing::AssertionFailure() << got.size() << " values, want " << want.size();
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::isnan(got[i]) != std::isnan(want[i]) ||
        (std::isinf(want[i]) || std::isinf(got[i]) ? got[i] != want[i] : false))
      return testing::AssertionFailure() << "NaN or Inf differ first at " << i << ": " << got[i] << ", want "
                                         << want[i];
  if (!result.guards_intact()) return testing::AssertionFailure() << "wrote outside its output";
  if (budget.metric == Metric::exact) {
    for (std::size_t i = 0; i < want.size(); ++i)
      if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0)
        return testing::AssertionFailure() << "first difference at " << i << ": " << got[i] << ", want " << want[i];
    return testing::AssertionSuccess();
  }
  if (const double error = nmse(got, want); !(error <= budget.bound)) {
    std::size_t worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      if (std::abs(got[i] - want[i]) > std::abs(got[worst] - want[worst])) worst = i;
    return testing::AssertionFailure() << "nmse " << error << " over the budget " << budget.bound << "; worst at "
                                       << worst << ": " << got[worst] << ", want " << want[worst];
  }
  return not_one_sided(got, want);
}

inline testing::AssertionResult twin(std::string_view name, Guarded<float>& result, std::span<const float> want) {
  const auto* entry = std::find_if(kSwitches.begin(), kSwitches.end(), [&](const Switch& s) { return s.name == name; });
  if (entry == kSwitches.end()) return testing::AssertionFailure() << "no switch " << name;
  return twin(entry->op_budget, result, want);
}

/// The twin test's verdict on an f32 result: NaN and Inf in the same places, guards untouched, error within the budget
/// of the switch table, not one-sided.
#define EXPECT_TWIN(switch_name, result, want) \
  EXPECT_TRUE((static_cast<void>(switch_index(switch_name)), twin(switch_name, result, want)))

/// The same verdict on what backend cpu made of an op, against its reference: nmse at most `bound`.
#define EXPECT_CPU_TWIN(bound, result, want) EXPECT_TRUE(twin(OpBudget{Metric::nmse, bound}, result, want))

}  // namespace plumb
