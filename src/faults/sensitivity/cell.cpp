#include "faults/sensitivity/cell.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "faults/check/outcome.h"

namespace plumb::faults {
namespace {

void count(Effect& effect, int worse, int better, std::int64_t trial) {
  effect.worse += worse;
  effect.better += better;
  const bool changed = worse + better > 0;
  if (changed && effect.seen_after == 0 && sign_e_value(effect.worse, effect.better) >= kSignificant)
    effect.seen_after = trial;
}

}  // namespace

CellSummary summary_of(const Cell& cell) {
  CellSummary s{.tokens = cell.tokens, .trials = static_cast<std::int64_t>(cell.trials.size())};
  if (s.trials == 0) return s;
  std::int64_t trial = 0, d_above = 0, kl_above = 0, gaps = 0;
  for (const TrialDifference& t : cell.trials) {
    ++trial;
    count(s.exact, t.lost, t.won, trial);
    count(s.no_answer, t.answers_missing, t.answers_more, trial);
    s.nats_mean += t.nats;
    s.d_mean += t.d;
    s.kl_mean += t.kl;
    d_above += t.d > kFloor;
    kl_above += t.kl > kFloor;
    if (t.d > kFloor && s.d_after == 0) s.d_after = trial;
    s.differing += t.differs;
    s.scored += t.decode_gap >= 0;
    gaps += t.decode_gap > 0;
    s.gap_max = std::max(s.gap_max, t.decode_gap);
  }
  const auto n = static_cast<double>(s.trials);
  s.nats_mean /= n;
  s.d_mean /= n;
  s.kl_mean /= n;
  s.d_share = static_cast<double>(d_above) / n;
  s.kl_share = static_cast<double>(kl_above) / n;
  s.gap_share = s.scored == 0 ? 0 : static_cast<double>(gaps) / static_cast<double>(s.scored);
  double squares = 0;
  for (const TrialDifference& t : cell.trials) squares += (t.nats - s.nats_mean) * (t.nats - s.nats_mean);
  s.nats_sd = s.trials > 1 ? std::sqrt(squares / (n - 1)) : 0;
  return s;
}

std::int64_t least_trials(std::int64_t tokens) { return tokens <= kShortTokens ? kLeastShort : kLeastLong; }

bool is_finished(const Cell& cell, std::int64_t most) {
  const auto trials = static_cast<std::int64_t>(cell.trials.size());
  if (trials >= most) return true;
  if (trials < least_trials(cell.tokens)) return false;
  const CellSummary s = summary_of(cell);
  if (s.differing == 0 || s.exact.seen_after > 0 || s.no_answer.seen_after > 0) return true;
  const std::int64_t hopeless = cell.tokens <= kShortTokens ? kHopeless : kHopelessLong;
  if (trials >= 2 * hopeless && s.exact.worse - s.exact.better <= 1) return true;
  const auto moved = [](const TrialDifference& t) { return std::abs(t.nats) > kUnmoved; };
  return trials >= hopeless && std::ranges::none_of(cell.trials, moved);
}

}  // namespace plumb::faults
