#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "investigator/history.h"

namespace plumb::investigator {

/// What a case was begun with; a resumed one must agree.
struct CaseIdentity {
  std::uint64_t seed = 0;
  std::string deployment_hash;  // of what the deployment launches, switches and asks
  std::vector<std::string> cells;
};

/// The journal of a case: SQLite, one row a launch, one a trial and one a scored text, each on disk (write-ahead log,
/// synchronous=FULL) before anything else happens. Killing the process loses at most the trial in flight, or the scores
/// of the running launch.
class Journal {
 public:
  /// Creates a journal. Errors: the file exists already, or cannot be written.
  static Result<Journal> create(const std::filesystem::path& file, const CaseIdentity& identity);
  /// Opens a journal of this version. Errors: no such file, not a journal of ours, another version, damaged.
  static Result<Journal> open(const std::filesystem::path& file);

  ~Journal();
  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) noexcept;

  const CaseIdentity& identity() const;
  const std::string& file() const;
  /// All of it. Errors: damaged, with what is wrong in which launch or trial; whether the launches and trials are those
  /// of a plan is for damage_of() to say.
  Result<History> read() const;
  /// Writes a launch; one with the same id is replaced, its trials are kept.
  Result<void> put_launch(const LaunchRecord& launch, double at_s);
  Result<void> add_trial(std::int64_t launch_id, const TrialRecord& trial);
  /// Writes the scores of a launch, all of them or none.
  Result<void> add_scores(std::int64_t launch_id, const std::vector<ScoreRecord>& scores);

 private:
  struct Impl;
  explicit Journal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb::investigator
