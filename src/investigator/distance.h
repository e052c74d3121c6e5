#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "investigator/deployment.h"
#include "investigator/scores.h"

namespace plumb::investigator {

/// How far one text's log-probabilities are from those of the reference:
///   d = 1/2 * mean over the compared tokens of (log-probability - the reference's)^2,   nats squared,
/// which estimates the Kullback-Leibler divergence for small changes. Scored: all tokens of the text, which must be
/// tokenised alike. Generated: the reference's tokens as long as both generate the same ones, and the first that
/// differs; where the other launch's list lacks it, it is taken for as probable as the last one listed, which is a
/// lower bound of the change.
struct TextDistance {
  ScoreItem item;
  double d = 0;
  int tokens = 0;        // compared
  int outside_list = 0;  // of them: taken for the last one listed
  std::optional<int> cached_tokens;
};

/// Texts that both launches measured and tokenised alike, in the order of `other`.
std::vector<TextDistance> distances(const std::vector<ScoreRecord>& reference, const std::vector<ScoreRecord>& other);

/// One value a prompt, which is one observation: the larger one where it was asked cold and as a hit.
struct PromptDistance {
  ScorePath path = ScorePath::scored;
  int length = 0;
  int number = 0;
  double d = 0;
};
std::vector<PromptDistance> by_prompt(const std::vector<TextDistance>& texts);

/// Mean and largest of the prompts; 0 of none.
struct DistanceSize {
  int prompts = 0;
  double mean = 0;
  double largest = 0;
};
DistanceSize size_of(const std::vector<PromptDistance>& prompts);
/// The same of the texts at one path and in one cache state.
DistanceSize size_of(const std::vector<TextDistance>& texts, ScorePath path, CacheState state);

/// Of repeated launches of the reference, prompt by prompt the largest. Each list is of one repeated launch.
std::vector<PromptDistance> floor_of(const std::vector<std::vector<PromptDistance>>& repeats);

/// How far a prompt may move within a budget: the declared shift and twice the largest floor of its path (the shift is
/// the upper 99 % over prompts, doubled; so is the floor).
double allowance(double shift, const std::vector<PromptDistance>& floor, ScorePath path);

/// An e-value against "a prompt passes its allowance with probability at most 1 %": with k of n above,
///   mean over q in {0.05, 0.2, 0.5, 0.9} of (q / 0.01)^k ((1 - q) / 0.99)^(n - k).
/// Valid whenever one stops, since each factor has expectation at most 1 whatever the true probability up to 1 %.
double over_budget_e_value(int above, int prompts);
/// The same counted from the distances.
double over_budget_e_value(const std::vector<PromptDistance>& prompts, double shift,
                           const std::vector<PromptDistance>& floor);

/// An e-value against "the first launch is not farther from the reference than the second": prompt by prompt, which of
/// the two is farther (SignEProcess). Prompts that only one of them has are left out.
double farther_e_value(const std::vector<PromptDistance>& first, const std::vector<PromptDistance>& second);

}  // namespace plumb::investigator
