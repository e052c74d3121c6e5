#pragma once

#include <cstdint>
#include <string_view>

#include "base/check.h"

namespace plumb {

/// 64 well-mixed bits from 64 bits (the splitmix64 finaliser).
inline std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// A seed of its own for each named purpose: hash(seed, label). Not for secrets.
inline std::uint64_t derive_seed(std::uint64_t seed, std::string_view label) {
  std::uint64_t h = mix64(seed);
  for (const char c : label) h = mix64(h ^ static_cast<unsigned char>(c));
  return mix64(h ^ label.size());
}

/// A counter-based random generator: equal seeds give equal streams on every machine and compiler.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(mix64(seed)) {}

  /// 64 uniform bits.
  std::uint64_t next() { return mix64(state_ + 0x9e3779b97f4a7c15ull * ++count_); }
  /// Uniform integer in [0, bound), bound > 0, without modulo bias.
  std::uint64_t below(std::uint64_t bound) {
    CHECK(bound > 0);
    const std::uint64_t limit = ~std::uint64_t{0} - (~std::uint64_t{0} % bound + 1) % bound;
    for (;;)
      if (const std::uint64_t x = next(); x <= limit) return x % bound;
  }
  /// Uniform integer in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    CHECK(low <= high);
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }
  /// Uniform in [0, 1) with 53 random bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  /// Standard normal (sum of twelve uniforms; tails end at 6).
  double normal() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::uint64_t state_;
  std::uint64_t count_ = 0;
};

}  // namespace plumb
