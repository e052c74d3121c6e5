#include "faults/sensitivity/trials_needed.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace plumb::faults {
namespace {

constexpr double kZ = 2.3263478740408408;  // of 1 %, one-sided
constexpr std::int64_t kMostExact = 1000;

// P(Bin(n, p) = k) for k = 0..n.
std::vector<double> binomial(std::int64_t n, double p) {
  std::vector<double> mass(static_cast<std::size_t>(n) + 1, 0.0);
  if (p <= 0 || p >= 1) {
    mass[p <= 0 ? 0 : static_cast<std::size_t>(n)] = 1;
    return mass;
  }
  for (std::int64_t k = 0; k <= n; ++k) {
    const auto a = static_cast<double>(k), b = static_cast<double>(n - k);
    mass[static_cast<std::size_t>(k)] = std::exp(std::lgamma(a + b + 1) - std::lgamma(a + 1) - std::lgamma(b + 1) +
                                                 a * std::log(p) + b * std::log1p(-p));
  }
  return mass;
}

// The smallest k with P(Bin(n, p) >= k) <= bound; n + 1 where there is none.
std::int64_t first_rare(const std::vector<double>& mass, double bound) {
  double tail = 0;
  auto k = static_cast<std::int64_t>(mass.size());
  while (k > 0 && tail + mass[static_cast<std::size_t>(k) - 1] <= bound) tail += mass[static_cast<std::size_t>(--k)];
  return k;
}

// That n trials find what is there.
double power(std::int64_t n, double differing, double lost_of_those) {
  const std::vector<double> counts = binomial(n, differing);
  double found = 0;
  for (std::int64_t d = 0; d <= n; ++d) {
    const double weight = counts[static_cast<std::size_t>(d)];
    if (weight < 1e-12) continue;
    const std::vector<double> lost = binomial(d, lost_of_those);
    for (std::int64_t k = first_rare(binomial(d, 0.5), kTestError); k <= d; ++k)
      found += weight * lost[static_cast<std::size_t>(k)];
  }
  return found;
}

std::int64_t counted(double trials) {
  return trials > static_cast<double>(kMostTrials) ? kNeverEnough : static_cast<std::int64_t>(std::ceil(trials));
}

}  // namespace

std::int64_t sign_test_trials(double lost, double won) {
  CHECK(lost >= 0 && won >= 0 && lost + won <= 1 + 1e-9);
  if (lost <= won) return kNeverEnough;
  const double differing = std::min(1.0, lost + won), share = lost / (lost + won);
  const double root = (kZ / 2 + kZ * std::sqrt(share * (1 - share))) / (share - 0.5);
  if (const double normal = root * root / differing; normal > kMostExact) return counted(normal);
  std::int64_t low = 1, high = 2;  // too few, enough
  while (power(high, differing, share) < 1 - kTestError) low = high, high *= 2;
  while (high - low > 1)
    if (const std::int64_t middle = (low + high) / 2; power(middle, differing, share) < 1 - kTestError)
      low = middle;
    else
      high = middle;
  return high;
}

std::int64_t mean_test_trials(double mean, double sd) {
  CHECK(sd >= 0);
  if (mean == 0) return kNeverEnough;
  const double ratio = 2 * kZ * sd / std::abs(mean);
  return ratio * ratio > 2 ? counted(ratio * ratio) : 2;
}

std::int64_t seen_trials(double share) {
  CHECK(share >= 0 && share <= 1);
  if (share == 0) return kNeverEnough;
  return share >= 1 - kTestError ? 1 : counted(std::log(kTestError) / std::log1p(-share));
}

double zero_bound(std::int64_t trials) {
  CHECK(trials > 0);
  return 1 - std::pow(0.05, 1.0 / static_cast<double>(trials));
}

}  // namespace plumb::faults
