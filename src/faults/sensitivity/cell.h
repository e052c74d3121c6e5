#pragma once

#include <cstdint>
#include <vector>

#include "faults/check/trials.h"

namespace plumb::faults {

/// The trials of one plant at one length, in order; each is one conversation with the fault and without.
struct Cell {
  std::int64_t tokens = 0;
  std::vector<TrialDifference> trials;
};

/// Evidence that a change of a yes-or-no outcome is no coin's: sign_e_value of lost against won after each trial, a
/// fair bet, so that whoever stops when it has reached kSignificant errs in at most 1 % of the cells (Ville).
inline constexpr double kSignificant = 100;
/// Below this D and KL say nothing but rounding: sums in another order give 1e-13.
inline constexpr double kFloor = 1e-12;
/// D has to show a fault within so many trials.
inline constexpr std::int64_t kTrialsForD = 50;

struct Effect {
  int worse = 0, better = 0;
  std::int64_t seen_after = 0;  // trials after which it was significant; 0: never
};

/// What a cell says.
struct CellSummary {
  std::int64_t tokens = 0, trials = 0, scored = 0;  // scored: those with a decode gap
  Effect exact, no_answer;
  double nats_mean = 0, nats_sd = 0;
  double d_mean = 0, d_share = 0, kl_mean = 0, kl_share = 0;  // share: of trials above kFloor
  double gap_max = 0, gap_share = 0;                          // share: of scored trials that are not equal to the bit
  std::int64_t d_after = 0;                                   // the first trial with D above kFloor; 0: none
  std::int64_t differing = 0;                                 // trials with any other bit
};
CellSummary summary_of(const Cell& cell);

/// That no further trial is needed. `most`: so many there are.
///   all were asked; or no bit differed in the first ones; or the answers' change is significant, and means and shares
///   have their least number; or no answer's log-probability has moved by kUnmoved nats in kHopeless trials; or no more
///   than one trial more was lost than won in twice as many. Beyond kShortTokens, kHopelessLong in its place.
bool is_finished(const Cell& cell, std::int64_t most);
/// So many trials a cell has at least, as far as there are.
std::int64_t least_trials(std::int64_t tokens);
inline constexpr std::int64_t kLeastShort = 16, kLeastLong = 8;  // trials; up to kShortTokens, and beyond
inline constexpr std::int64_t kShortTokens = 1024;
inline constexpr std::int64_t kHopeless = 64, kHopelessLong = 16;
inline constexpr double kUnmoved = 0.1;

}  // namespace plumb::faults
