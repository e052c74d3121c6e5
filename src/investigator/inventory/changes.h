#pragma once

#include <string>
#include <vector>

#include "investigator/inventory/diff.h"
#include "investigator/inventory/source.h"

namespace plumb::investigator::inventory {

/// A changed file with both sides cut into statements.
struct ParsedFile {
  const ChangedFile* file = nullptr;
  Source old_source, new_source;
};

/// One statement that changed: before and after, or only one of the two. Layout and comments are no change.
struct Change {
  std::size_t file = 0, hunk = 0;  // indices into the parsed files and their hunks
  const Statement* before = nullptr;
  const Statement* after = nullptr;
  std::vector<std::size_t> lost, gained;  // changed tokens, as positions within the statement
  bool moved = false;                     // the same statement stands, or stood, elsewhere in the range
};

/// Every changed statement of the files, hunk by hunk. Statements equal on both sides of a hunk are left out; the
/// others are paired by common tokens, the rest in order. Renamed local names are no change. A statement removed here
/// and added elsewhere in the range is `moved` on both ends.
std::vector<Change> find_changes(const std::vector<ParsedFile>& files);

}  // namespace plumb::investigator::inventory
