#include "faults/check/outcome.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "base/check.h"

namespace plumb::faults {
namespace {

constexpr double kLeastEvidence = 100;
constexpr double kDamageRate = 0.02;
constexpr double kDamageNats = 0.05;
constexpr double kUnscored = -30;  // the log-probability of a token that got none

Count wrong_of(const std::vector<Answer>& answers) {
  const auto wrong = std::ranges::count_if(answers, [](const Answer& a) { return !a.right; });
  return {static_cast<int>(wrong), static_cast<int>(answers.size())};
}

using Answers = std::vector<Answer> Sightings::*;
constexpr std::array<Answers, 7> kAnswered{&Sightings::near,    &Sightings::boundary,      &Sightings::needle,
                                           &Sightings::turns,   &Sightings::hits_answered, &Sightings::crowd_answered,
                                           &Sightings::exacting};

// ½ · mean of squared differences; a value that is missing counts as kUnscored.
double half_mean_square(const std::vector<float>& seen, const std::vector<float>& reference) {
  if (reference.empty()) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double delta =
        (i < seen.size() ? static_cast<double>(seen[i]) : kUnscored) - static_cast<double>(reference[i]);
    sum += delta * delta;
  }
  return sum / (2 * static_cast<double>(reference.size()));
}

double d_cold(const Sightings& seen, const Sightings& reference) {
  double sum = 0;
  for (std::size_t t = 0; t < reference.scores.size(); ++t)
    sum += half_mean_square(seen.scores[t], reference.scores[t]);
  return sum / static_cast<double>(reference.scores.size());
}

// The reference's scores of tokens text_cuts(), and of tokens kDecodeFrom and on.
std::vector<float> scores_at_cuts(const std::vector<float>& scores) {
  std::vector<float> at;
  for (const std::int64_t cut : text_cuts()) at.push_back(scores[static_cast<std::size_t>(cut) - 1]);
  return at;
}
std::vector<float> scores_decoded(const std::vector<float>& scores) {
  return {scores.begin() + kDecodeFrom - 1, scores.end()};
}

double d_hit(const Sightings& seen, const Sightings& reference) {
  double sum = 0;
  int texts = 0;
  for (std::size_t t = 0; t < reference.scores.size(); ++t) {
    if (seen.hits[t].empty()) continue;
    sum += half_mean_square(seen.hits[t], scores_at_cuts(reference.scores[t]));
    ++texts;
  }
  return texts == 0 ? 0 : sum / texts;
}

double d_decode(const Sightings& seen, const Sightings& reference) {
  double sum = 0;
  for (std::size_t t = 0; t < reference.scores.size(); ++t)
    sum += half_mean_square(seen.decoded[t], scores_decoded(reference.scores[t]));
  return sum / static_cast<double>(reference.scores.size());
}

struct Lost {
  double evidence = 0;  // that answers of some probe are wrong more often, mean over probes
  int answers = 0;
  double nats = 0;  // by which answers are less likely, mean over all
  double evidence_of_nats = 0;
};

Lost lost_answers(const Sightings& seen, const Sightings& reference) {
  Lost lost;
  int less_likely = 0, more_likely = 0, count = 0;
  for (const Answers list : kAnswered) {
    const auto &now = seen.*list, &before = reference.*list;
    CHECK(now.size() == before.size());
    int broken = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      broken += static_cast<int>(before[i].right) - static_cast<int>(now[i].right);
      double nats = 0;
      for (std::size_t t = 0; t < std::min(now[i].logprobs.size(), before[i].logprobs.size()); ++t)
        nats += static_cast<double>(before[i].logprobs[t]) - static_cast<double>(now[i].logprobs[t]);
      less_likely += nats > kDamageNats;
      more_likely += nats < -kDamageNats;
      lost.nats += nats;
    }
    count += static_cast<int>(now.size());
    lost.answers += std::max(0, broken);
    lost.evidence += rate_e_value(std::max(0, broken), static_cast<int>(now.size()), kDamageRate) / kAnswered.size();
  }
  lost.nats /= count;
  lost.evidence_of_nats = sign_e_value(less_likely, more_likely);
  return lost;
}

Count repeats_of(const Sightings& seen, const std::vector<std::vector<std::uint64_t>>& further) {
  Count count;
  const auto compare = [&](std::uint64_t digest) {
    count.failed += digest != seen.repeats.front();
    ++count.of;
  };
  for (std::size_t i = 1; i < seen.repeats.size(); ++i) compare(seen.repeats[i]);
  for (const auto& launch : further)
    for (const std::uint64_t digest : launch) compare(digest);
  return count;
}

}  // namespace

double sign_e_value(int worse, int better) {
  CHECK(worse >= 0 && better >= 0);
  constexpr int kSteps = 4000;  // midpoints; the integrand is smooth, so that four digits are right
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double p = 0.5 + (i + 0.5) / (2.0 * kSteps);
    sum += std::exp(worse * std::log(2 * p) + better * std::log(2 * (1 - p)));
  }
  return sum / kSteps;
}

double rate_e_value(int failed, int of, double rate) {
  CHECK(failed >= 0 && failed <= of && rate > 0 && rate < 1);
  constexpr int kSteps = 4000;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double p = rate + (1 - rate) * (i + 0.5) / kSteps;
    sum += std::exp(failed * std::log(p / rate) + (of - failed) * std::log((1 - p) / (1 - rate)));
  }
  return sum / kSteps;
}

std::string signature_text(const Signature& signature) {
  std::string text;
  for (std::size_t i = 0; i < kProbeCount; ++i)
    text += fmt::format("{}{} {}/{}", i == 0 ? "" : " ", kProbeLetters[i], signature[i].failed, signature[i].of);
  return text;
}

Result<Signature> parse_signature(std::string_view text) {
  std::istringstream in{std::string(text)};
  Signature signature;
  for (std::size_t i = 0; i < kProbeCount; ++i) {
    char letter = 0, slash = 0;
    if (!(in >> letter >> signature[i].failed >> slash >> signature[i].of) || letter != kProbeLetters[i] ||
        slash != '/')
      return error("signature '{}': write it as '{}'", text, signature_text({}));
  }
  return signature;
}

std::string signature_letters(const Signature& signature) {
  std::string letters;
  for (const Count& count : signature)
    letters += count.failed == 0 ? '.' : 3 * count.failed >= 2 * count.of ? 'x' : '~';
  return letters;
}

Outcome outcome_of(const Sightings& seen, const std::vector<std::vector<std::uint64_t>>& further,
                   const Ground& ground) {
  Outcome outcome;
  const auto pair_count = [](const Pairs& pairs) { return Count{pairs.differing, pairs.of}; };
  outcome.signature = {wrong_of(seen.near),     wrong_of(seen.boundary),   wrong_of(seen.needle),
                       wrong_of(seen.turns),    pair_count(seen.hit),      pair_count(seen.crowd),
                       pair_count(seen.decode), repeats_of(seen, further), wrong_of(seen.exacting)};
  const auto largest_d = [&](const Sightings& s) {
    return std::max({d_cold(s, ground.reference), d_hit(s, ground.reference), d_decode(s, ground.reference)});
  };
  outcome.d_cold = d_cold(seen, ground.reference);
  outcome.d_hit = d_hit(seen, ground.reference);
  outcome.d_decode = d_decode(seen, ground.reference);
  for (std::size_t i = 0; i < ground.reference.likeliest.size(); ++i)
    outcome.flips += seen.likeliest[i] != ground.reference.likeliest[i];
  outcome.passages = static_cast<int>(ground.reference.likeliest.size());
  outcome.site = first_difference(ground.honest.trace, seen.trace);
  const double budget = std::max(ground.shift, 2 * largest_d(ground.honest));
  bool pairs_differ = false;
  for (std::size_t i = 0; i < kProbeCount; ++i)
    pairs_differ |= kComparisons.find(kProbeLetters[i]) != std::string_view::npos && outcome.signature[i].failed > 0;
  const Lost lost = lost_answers(seen, ground.reference);
  outcome.lost_answers = lost.answers;
  outcome.lost_nats = lost.nats;
  if (lost.evidence >= kLeastEvidence || (lost.nats > kDamageNats && lost.evidence_of_nats >= kLeastEvidence))
    outcome.word = kDamage;
  else if (largest_d(seen) > budget)
    outcome.word = kOverBudget;
  else if (pairs_differ || !outcome.site.empty() || outcome.flips > 0 || seen.replies != ground.honest.replies)
    outcome.word = kDifference;
  else
    outcome.word = kNothing;
  return outcome;
}

}  // namespace plumb::faults
