#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "investigator/inventory/language.h"

namespace plumb::investigator::inventory {

/// A changed line: where it is in its own text, and before which line of the other text it would stand.
struct ChangedLine {
  int line = 0;
  int other = 0;
};

/// One hunk as `git diff` cuts it (three lines of context). Lines count from 1.
struct Hunk {
  int old_start = 0, old_lines = 0, new_start = 0, new_lines = 0;
  std::vector<ChangedLine> removed, added;

  /// "@@ -12,7 +12,9 @@"
  std::string header() const;
};

struct ChangedFile {
  std::string path;      // on the new side; on the old one if the file was deleted
  std::string old_path;  // differs after a rename
  Language language = Language::none;
  Role role = Role::source;
  std::string old_text, new_text;  // empty where the side does not exist
  std::vector<Hunk> hunks;
};

/// What was met and what was set aside. changed = read + docs + other_language + binary + huge + submodules + links.
struct DiffCounts {
  int changed = 0;     // entries of the diff
  int read = 0;        // files whose hunks are below
  int tests = 0;       // of those, tests
  int converters = 0;  // of those, offline converters
  int docs = 0;
  int other_language = 0;
  int binary = 0;
  int huge = 0;  // above kHugeBytes on one side
  int submodules = 0;
  int links = 0;
  int not_utf8 = 0;  // read all the same, byte by byte
};

inline constexpr std::size_t kHugeBytes = 4 << 20;

struct RangeDiff {
  std::string from, to;  // full commit ids
  std::vector<ChangedFile> files;
  DiffCounts counts;
  std::vector<std::string> notes;  // what a reader must know: a shallow clone, a submodule that moved, …
};

/// Reads what changed from A to B (`A..B`; `A...B` starts at their merge base; an end left out is HEAD) in the
/// repository that holds `repository`. Reads objects only: no work tree, no configuration of filters, nothing written.
/// Errors: no repository, no range, an unknown revision (with a word about shallow clones), an object that is missing.
Result<RangeDiff> read_range(const std::filesystem::path& repository, std::string_view range);

}  // namespace plumb::investigator::inventory
