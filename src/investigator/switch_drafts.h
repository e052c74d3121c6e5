#pragma once

#include <string>
#include <utility>
#include <vector>

#include "investigator/deployment.h"
#include "investigator/deployment_check.h"

namespace plumb::investigator {

/// A [[switch]] as the file has it: any number of sides beside off, perhaps one for each role.
struct SwitchDraft {
  SwitchSpec spec;                                         // without its on side
  std::vector<std::pair<std::string, SwitchSide>> values;  // sides other than off
  std::string deployed;                                    // name of a side
  bool per_role = false;

  bool has_many_sides() const { return values.size() > 1 || (values.size() == 1 && values[0].first != "on"); }
  std::string side_names() const;  // "off, on"
};

/// The two-sided switches of the drafts: "a" stays; "a" with the sides off, x and y becomes "a:x" and "a:y", which
/// conflict; with per_role it becomes one for each role of its processes, "a@prefill" and "a@decode". `requires` and
/// `conflicts` that name an expanded switch mean those of the same role where there are, else all of it.
/// Errors: a name twice; per_role where only one role is there, or for what requests carry.
Result<std::vector<SwitchSpec>> expand_switches(const std::vector<SwitchDraft>& drafts,
                                                const std::vector<ProcessSpec>& processes, const Locate& locate);

}  // namespace plumb::investigator
