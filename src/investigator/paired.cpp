#include "investigator/paired.h"

#include <cmath>

namespace plumb::investigator {

double discordant_e_value(int a, int b) {
  const double n = a + b;
  return std::exp(n * std::log(2.0) + std::lgamma(a + 1.0) + std::lgamma(b + 1.0) - std::lgamma(n + 2.0));
}

}  // namespace plumb::investigator
