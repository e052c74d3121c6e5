#include "investigator/history.h"

#include <algorithm>
#include <array>

namespace plumb::investigator {
namespace {
constexpr std::array kStatusNames{"open", "done", "infeasible", "failed", "died"};
}

std::int64_t TrialRecord::tokens() const {
  std::int64_t sum = 0;
  for (const StepRecord& s : steps) sum += s.prompt_tokens.value_or(s.expected_tokens) + s.dial_tokens;
  return sum;
}

Grade worst_grade(const std::vector<StepRecord>& steps) {
  bool unresolved = false;
  for (const StepRecord& s : steps) {
    if (s.graded && is_failure(s.grade)) return s.grade;
    unresolved |= s.grade == Grade::infrastructure;
  }
  return unresolved ? Grade::infrastructure : Grade::right;
}

std::string_view status_name(LaunchRecord::Status status) { return kStatusNames[static_cast<std::size_t>(status)]; }

Result<LaunchRecord::Status> parse_status(std::string_view name) {
  for (std::size_t i = 0; i < kStatusNames.size(); ++i)
    if (name == kStatusNames[i]) return static_cast<LaunchRecord::Status>(i);
  return error("'{}' is no launch status", name);
}

const LaunchRecord* History::find(std::string_view label) const {
  const auto it = std::find_if(launches.begin(), launches.end(), [&](const auto& l) { return l.label == label; });
  return it == launches.end() ? nullptr : &*it;
}

int History::starts() const {
  int sum = 0;
  for (const LaunchRecord& l : launches) sum += l.starts;
  return sum;
}

std::int64_t History::tokens() const {
  std::int64_t sum = 0;
  for (const LaunchRecord& l : launches) {
    for (const TrialRecord& t : l.trials) sum += t.tokens();
    for (const ScoreRecord& s : l.scores) sum += s.tokens();
  }
  return sum;
}

}  // namespace plumb::investigator
