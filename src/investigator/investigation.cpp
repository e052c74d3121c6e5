#include "investigator/investigation.h"

#include <set>

#include "investigator/replay.h"

namespace plumb::investigator {

int Verdict::exit_code() const {
  if (verdict == "clean") return 0;
  return verdict == "inconclusive" ? 2 : 1;
}

std::optional<std::string> damage_of(const Plan& plan, const History& history) {
  return Replay(plan, history).damage();
}

NextStep next_step(const Plan& plan, const History& history) { return Replay(plan, history).run(); }

Findings findings_so_far(const Plan& plan, const History& history) { return Replay(plan, history).so_far(); }

Counts count_trials(const History& history, const Variant& variant, std::string_view prefix, std::string_view cell) {
  std::set<std::pair<std::uint64_t, Wording>> counted;
  Counts c;
  for (const LaunchRecord& l : history.launches) {
    if (l.variant != variant || !l.label.starts_with(prefix)) continue;
    for (const TrialRecord& t : l.trials)
      if (t.item.cell == cell && t.grade != Grade::infrastructure && counted.insert({t.item.seed, t.wording}).second)
        c += {is_failure(t.grade) ? 1 : 0, 1};
  }
  return c;
}

}  // namespace plumb::investigator
