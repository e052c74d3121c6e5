#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "faults/check/trials.h"

namespace plumb::faults {

/// "kind/form" and a length in tokens.
using CellKey = std::pair<std::string, std::int64_t>;

/// The trials of each group of conversations that was asked, in a file with one line a group, flushed to disk before
/// the next begins: a kill loses the group in flight. The first line says what is measured; a line that a kill cut
/// short is not read.
class Journal {
 public:
  /// Opens or begins the journal of `subject`. Errors: it cannot be written, or is of another subject.
  static Result<Journal> open(const std::filesystem::path& file, const std::string& subject);

  /// Groups that are known of a cell, by number.
  const std::map<std::size_t, std::vector<TrialDifference>>* find(const CellKey& cell) const;
  /// Those of all cells.
  const std::map<CellKey, std::map<std::size_t, std::vector<TrialDifference>>>& cells() const { return cells_; }

  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::map<CellKey, std::map<std::size_t, std::vector<TrialDifference>>> cells_;
};

/// Appends a group, from any process. Errors: the system's.
Result<void> append_group(const std::filesystem::path& journal, const CellKey& cell, std::size_t group,
                          const std::vector<TrialDifference>& trials);

/// Trials as text and back, for pipes and the journal. Errors: text that is none.
std::string trials_text(const std::vector<TrialDifference>& trials);
Result<std::vector<TrialDifference>> parse_trials(const std::string& text);

}  // namespace plumb::faults
