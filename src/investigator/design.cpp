#include "investigator/design.h"

#include "investigator/statistics.h"

namespace plumb::investigator {

std::optional<Design> choose_design(Counts bad, Counts good) {
  constexpr double kWrong = 0.01;
  constexpr int kMinTrials = 4;
  const double ba = bad.failures + 0.5;
  const double bb = bad.trials - bad.failures + 0.5;
  const double ga = good.failures + 0.5;
  const double gb = good.trials - good.failures + 0.5;
  for (int n = kMinTrials; n <= kMaxTrialsPerLaunch; ++n)
    for (int t = 1; t <= n; ++t)
      if (1 - beta_binomial_cdf(t - 1, n, ga, gb) <= kWrong) {
        if (beta_binomial_cdf(t - 1, n, ba, bb) <= kWrong) return Design{n, t};
        break;  // a higher threshold only misses more
      }
  return std::nullopt;
}

}  // namespace plumb::investigator
