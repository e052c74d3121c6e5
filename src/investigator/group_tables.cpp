#include "investigator/group_tables.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

constexpr double kSteady = 0.7;  // share of faults that show in nearly every launch
constexpr SequenceTable::Beta kBadSteady{20, 0.5};
constexpr SequenceTable::Beta kBadFlaky{2, 1};
constexpr SequenceTable::Beta kGoodSteady{0.5, 30};
constexpr SequenceTable::Beta kGoodFlaky{0.5, 6};

}  // namespace

SequenceTable::SequenceTable(Beta steady, Beta flaky) {
  for (int n = 0; n < kKept; ++n)
    for (int k = 0; k <= n; ++k) {
      const double s = log_beta_ratio(k, n, steady.a, steady.b) + std::log(kSteady);
      const double f = log_beta_ratio(k, n, flaky.a, flaky.b) + std::log1p(-kSteady);
      const double peak = std::max(s, f);
      log_.push_back(peak + std::log(std::exp(s - peak) + std::exp(f - peak)));
    }
}

std::size_t SequenceTable::at(Counts c) {
  CHECK(0 <= c.failures && c.failures <= c.trials && c.trials < kKept);
  const auto trials = static_cast<std::size_t>(c.trials);
  return trials * (trials + 1) / 2 + static_cast<std::size_t>(c.failures);
}

double SequenceTable::next_fails(Counts c) const {
  return std::exp(log_of({c.failures + 1, c.trials + 1}) - log_of(c));
}

const SequenceTable& bad_table() {
  static const SequenceTable kTable(kBadSteady, kBadFlaky);
  return kTable;
}

const SequenceTable& good_table() {
  static const SequenceTable kTable(kGoodSteady, kGoodFlaky);
  return kTable;
}

}  // namespace plumb::investigator
