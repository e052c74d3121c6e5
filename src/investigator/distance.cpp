#include "investigator/distance.h"

#include <algorithm>
#include <cmath>

#include "investigator/statistics.h"

namespace plumb::investigator {
namespace {

const ScoreRecord* find(const std::vector<ScoreRecord>& records, const ScoreItem& item) {
  const auto it = std::find_if(records.begin(), records.end(), [&](const ScoreRecord& r) { return r.item == item; });
  return it == records.end() || it->scores.status != Scores::Status::measured ? nullptr : &*it;
}

const PromptDistance* find(const std::vector<PromptDistance>& prompts, const PromptDistance& like) {
  const auto it = std::find_if(prompts.begin(), prompts.end(), [&](const PromptDistance& p) {
    return p.path == like.path && p.length == like.length && p.number == like.number;
  });
  return it == prompts.end() ? nullptr : &*it;
}

void compare_scored(const Scores& reference, const Scores& other, TextDistance& t) {
  if (reference.tokens_hash != other.tokens_hash ||
      reference.log_probabilities.size() != other.log_probabilities.size())
    return;
  for (std::size_t i = 0; i < other.log_probabilities.size(); ++i) {
    const double change = other.log_probabilities[i] - reference.log_probabilities[i];
    t.d += change * change;
  }
  t.tokens = static_cast<int>(other.log_probabilities.size());
}

void compare_generated(const Scores& reference, const Scores& other, TextDistance& t) {
  for (std::size_t i = 0; i < std::min(reference.generated.size(), other.generated.size()); ++i) {
    const ListedToken& want = reference.generated[i].chosen;
    const GeneratedToken& got = other.generated[i];
    const bool same = got.chosen.text == want.text;
    double log_probability = got.chosen.log_probability;
    if (!same) {
      const auto listed =
          std::find_if(got.list.begin(), got.list.end(), [&](const ListedToken& l) { return l.text == want.text; });
      if (listed != got.list.end()) {
        log_probability = listed->log_probability;
      } else {
        ++t.outside_list;
        if (!got.list.empty()) log_probability = got.list.back().log_probability;
      }
    }
    const double change = log_probability - want.log_probability;
    t.d += change * change;
    ++t.tokens;
    if (!same) return;  // what follows has another context
  }
}

// How often prompts pass their allowance where a switch is over its budget; unknown, so all of these.
constexpr double kRates[] = {0.05, 0.2, 0.5, 0.9};
constexpr double kWithinBudget = 0.01;

}  // namespace

std::vector<TextDistance> distances(const std::vector<ScoreRecord>& reference, const std::vector<ScoreRecord>& other) {
  std::vector<TextDistance> all;
  for (const ScoreRecord& r : other) {
    if (r.scores.status != Scores::Status::measured) continue;
    const ScoreRecord* from = find(reference, r.item);
    if (from == nullptr || from->wording != r.wording) continue;
    TextDistance t{.item = r.item, .cached_tokens = r.scores.cached_tokens};
    (r.item.path == ScorePath::scored ? compare_scored : compare_generated)(from->scores, r.scores, t);
    if (t.tokens == 0) continue;
    t.d /= 2.0 * t.tokens;
    all.push_back(t);
  }
  return all;
}

std::vector<PromptDistance> by_prompt(const std::vector<TextDistance>& texts) {
  std::vector<PromptDistance> prompts;
  for (const TextDistance& t : texts) {
    const PromptDistance p{t.item.path, t.item.length, t.item.number, t.d};
    const auto it = std::find_if(prompts.begin(), prompts.end(), [&](const PromptDistance& q) {
      return q.path == p.path && q.length == p.length && q.number == p.number;
    });
    if (it == prompts.end())
      prompts.push_back(p);
    else
      it->d = std::max(it->d, p.d);
  }
  return prompts;
}

DistanceSize size_of(const std::vector<PromptDistance>& prompts) {
  DistanceSize size;
  for (const PromptDistance& p : prompts) {
    ++size.prompts;
    size.mean += p.d;
    size.largest = std::max(size.largest, p.d);
  }
  if (size.prompts > 0) size.mean /= size.prompts;
  return size;
}

DistanceSize size_of(const std::vector<TextDistance>& texts, ScorePath path, CacheState state) {
  std::vector<PromptDistance> prompts;
  for (const TextDistance& t : texts)
    if (t.item.path == path && t.item.state == state) prompts.push_back({path, t.item.length, t.item.number, t.d});
  return size_of(prompts);
}

std::vector<PromptDistance> floor_of(const std::vector<std::vector<PromptDistance>>& repeats) {
  std::vector<PromptDistance> floor;
  for (const auto& repeat : repeats)
    for (const PromptDistance& p : repeat) {
      const auto it = std::find_if(floor.begin(), floor.end(), [&](const PromptDistance& q) {
        return q.path == p.path && q.length == p.length && q.number == p.number;
      });
      if (it == floor.end())
        floor.push_back(p);
      else
        it->d = std::max(it->d, p.d);
    }
  return floor;
}

double allowance(double shift, const std::vector<PromptDistance>& floor, ScorePath path) {
  double largest = 0;
  for (const PromptDistance& p : floor)
    if (p.path == path) largest = std::max(largest, p.d);
  return shift + 2 * largest;
}

double over_budget_e_value(int above, int prompts) {
  double sum = 0;
  for (const double q : kRates)
    sum += std::exp(above * std::log(q / kWithinBudget) + (prompts - above) * std::log((1 - q) / (1 - kWithinBudget)));
  return sum / static_cast<double>(std::size(kRates));
}

double over_budget_e_value(const std::vector<PromptDistance>& prompts, double shift,
                           const std::vector<PromptDistance>& floor) {
  int above = 0;
  for (const PromptDistance& p : prompts) above += p.d > allowance(shift, floor, p.path) ? 1 : 0;
  return over_budget_e_value(above, static_cast<int>(prompts.size()));
}

double farther_e_value(const std::vector<PromptDistance>& first, const std::vector<PromptDistance>& second) {
  SignEProcess e;
  for (const PromptDistance& p : first)
    if (const PromptDistance* q = find(second, p)) e.add(p.d, q->d);
  return e.value();
}

}  // namespace plumb::investigator
