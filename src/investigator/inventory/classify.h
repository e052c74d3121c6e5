#pragma once

#include <optional>
#include <string>
#include <vector>

#include "investigator/inventory/diff.h"
#include "investigator/inventory/gates.h"
#include "investigator/inventory/rules.h"

namespace plumb::investigator::inventory {

/// What a change of format does to one application.
struct Rounding {
  int operands = 0;          // values that are rounded where they were not
  double unit_roundoff = 0;  // of the coarsest new format (bf16: 2^-9)
  std::string from, to;      // words of the formats; from is empty where the text does not name it
  bool biased = false;       // truncation, or a low-precision sum: errors do not cancel
};

/// A numerical change: where, what, and whom it reaches.
struct Finding {
  std::string file, hunk, function;
  int line = 0;  // on the new side, or on the old one if the statement is gone
  Class cls = Class::other;
  std::string what;  // one clause in an engineer's words
  Language language = Language::none;
  Role role = Role::source;
  const Area* area = nullptr;
  std::string phase;  // prefill, decode or both
  bool per_layer = false, per_token = false;
  std::optional<Gate> gate;
  bool plumbing = false;    // logs, metrics, arguments
  bool widening = false;    // more bits than before
  bool whole = false;       // a statement without partner: new or deleted code
  bool deleted = false;     // of those, deleted
  bool whole_unit = false;  // its function or file is new or deleted
  std::optional<Rounding> rounding;
};

/// Classifies every changed statement. Findings come in the order of files, hunks and statements; a statement that no
/// rule names gives `other`, so that nothing changed is invisible. Quadratic in no input but a single hunk (bounded
/// there).
std::vector<Finding> classify(const std::vector<ChangedFile>& files);

}  // namespace plumb::investigator::inventory
