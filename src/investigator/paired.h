#pragma once

namespace plumb::investigator {

/// The e-value against "a prompt that only one of two servers fails is as likely to be failed by either": with a
/// failures of the one alone and b of the other alone
///   2^(a+b) * integral over p of p^a (1-p)^b = 2^(a+b) * a! b! / (a+b+1)!
/// Under that hypothesis its expectation is 1 whenever one stops, so that 100 is passed with probability at most 1 %,
/// also by who looks after every prompt. 11 to 0 is the least that passes 100. Symmetric in a and b.
double discordant_e_value(int a, int b);

/// From here on a difference counts as shown (the one-percent level), or as hinted (five percent).
inline constexpr double kShownEValue = 100;
inline constexpr double kHintedEValue = 20;

}  // namespace plumb::investigator
