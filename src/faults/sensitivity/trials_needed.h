#pragma once

#include <cstdint>

namespace plumb::faults {

/// How many paired trials a test needs so that both its errors are at most 1 %: to call a fault that is none, and to
/// miss one of this size.
inline constexpr double kTestError = 0.01;
/// More than this many trials are not counted: kNeverEnough.
inline constexpr std::int64_t kMostTrials = 1'000'000;
inline constexpr std::int64_t kNeverEnough = -1;

/// Of the exact one-sided sign test on trials of which a share `lost` is right without the fault alone and a share
/// `won` with it alone. Of n trials d ~ Bin(n, lost + won) differ, l ~ Bin(d, lost/(lost + won)) of them are lost; it
/// calls when P(Bin(d, ½) ≥ l) ≤ 1 %. Where that is above 1,000: ((z/2 + z·√(π(1-π))) / (π - ½))² / (lost + won), the
/// normal approximation, π = lost/(lost + won), z = 2.326. kNeverEnough where lost ≤ won.
std::int64_t sign_test_trials(double lost, double won);

/// Of the one-sided test of a mean of differences: ⌈((z + z)·sd/|mean|)²⌉, at least 2. kNeverEnough where mean is 0.
std::int64_t mean_test_trials(double mean, double sd);

/// Of "any trial differs", where trials without the fault never do: ⌈ln 1 % / ln(1 - share)⌉. kNeverEnough where none
/// does.
std::int64_t seen_trials(double share);

/// The largest share that zero of `trials` is compatible with at 95 %: 1 - 5 %^(1/trials).
double zero_bound(std::int64_t trials);

}  // namespace plumb::faults
