#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "investigator/inventory/classify.h"
#include "investigator/inventory/diff.h"

namespace plumb::investigator::inventory {

/// What changed in a range of revisions that can alter numbers or state.
struct Inventory {
  std::string from, to;
  DiffCounts counts;
  std::vector<std::string> notes;
  std::vector<Finding> findings;

  /// Findings of a named class in code that serves (tests, converters and plumbing left out).
  int numerical() const;

  /// Whether something was set aside that could have held a change: a huge or binary file, a submodule.
  bool covered() const { return counts.huge == 0 && counts.submodules == 0 && counts.binary == 0; }
};

/// Reads and classifies a range. Errors: those of read_range.
Result<Inventory> take_inventory(const std::filesystem::path& repository, std::string_view range);

/// {"from", "to", "files": {counts}, "notes": […], "findings": [{"file", "hunk", "line", "function", "class", "what",
/// "language", "role", "area", "phase", "reach": {"per_layer", "per_token"}, "gate": null | {"name", "kind", "default",
/// "set_by_launch", "inverted"}}]}; `default` is on, off or unknown.
nlohmann::ordered_json to_json(const Inventory& inventory);

/// The same for a reader: one line a finding, counts at the end. Findings of class other and of tests are counted only.
std::string to_text(const Inventory& inventory);

/// {"name", "kind", "default", …} or null.
nlohmann::ordered_json gate_json(const std::optional<Gate>& gate);

}  // namespace plumb::investigator::inventory
