#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "faults/check/measure.h"

namespace plumb::faults {

/// The probes of a signature, in order: short, boundary, needle, turns, hit, crowd, decode, repeat, exacting.
inline constexpr std::string_view kProbeLetters = "SBNTHCDRE";
inline constexpr std::size_t kProbeCount = kProbeLetters.size();
/// Those that compare a variant with itself; the others' answers may be wrong without a fault, too.
inline constexpr std::string_view kComparisons = "HCDR";

/// How many of a probe's comparisons failed. S B N T E: answers that are not exactly right; H C D R: replies that
/// differ in any bit of any log-probability from the one they must equal.
struct Count {
  int failed = 0;
  int of = 0;
  bool operator==(const Count&) const = default;
};
using Signature = std::array<Count, kProbeCount>;

/// "S 0/8 B 2/8 …", and back. Errors: text that is none.
std::string signature_text(const Signature& signature);
Result<Signature> parse_signature(std::string_view text);
/// One letter a probe: x where at least two thirds failed, . where none did, else ~.
std::string signature_letters(const Signature& signature);

/// The three words of a verdict on a difference, and a fourth for none: damage, over budget, difference, nothing.
/// damage: against the reference variant, answers of some probe wrong more often by over 2 points, or answers less
/// likely by over 0.05 nats, at an e-value of 100.
/// over budget: no damage shown, but D above what the host's honest on side may have (its shift, or twice its own D).
/// difference: any bit of anything that was compared, replies to the same questions among it. nothing: the phantom
/// cannot see it.
inline constexpr std::string_view kDamage = "damage", kOverBudget = "over budget", kDifference = "difference",
                                  kNothing = "nothing";

/// Sightings of one plant, judged.
struct Outcome {
  Signature signature{};
  // D = ½ · mean of (Δ log-probability)² over the realised tokens of a text, mean over texts: scored from a cold start,
  // as hits at cut points, and decoded token by token.
  double d_cold = 0, d_hit = 0, d_decode = 0;
  int flips = 0;  // passages of unfamiliar text in which any most likely id changed
  int passages = 0;
  int lost_answers = 0;  // wrong where the reference is right
  double lost_nats = 0;  // by how much less likely an answer became, mean over answers
  std::string word;
  std::string site;  // the first that differs from the honest on side; empty: none
};

/// What the outcome is judged against.
struct Ground {
  Sightings reference;  // every switch off
  Sightings honest;     // the host's on side as it should be
  double shift;         // the host's budget in D
};

/// `further`: the repeat probe in other launches.
Outcome outcome_of(const Sightings& seen, const std::vector<std::vector<std::uint64_t>>& further, const Ground& ground);

/// E-value of "worse more often than better" against a fair coin, b against c: the likelihood ratio, averaged over all
/// coins that favour worse.  2^(b+c+1) · integral from ½ to 1 of p^b (1-p)^c dp
double sign_e_value(int worse, int better);

/// E-value of "fails at a rate above `rate`": the likelihood ratio, averaged over all higher rates.
///   1/(1-rate) · integral from rate to 1 of (p/rate)^failed ((1-p)/(1-rate))^(of-failed) dp
double rate_e_value(int failed, int of, double rate);

}  // namespace plumb::faults
