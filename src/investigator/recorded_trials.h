#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace plumb::investigator {

// Trials of a real engine with known faults planted, kept as marks: what `plumb bench isolate --record` writes and
// `--recorded` draws investigations from. The file is text, one JSON object a line: the first says what was recorded
// and how, each further one is a launch.

/// A fault as the server that has it names it; kind "none": nothing is planted.
struct RecordedPlant {
  std::string kind = "none";
  std::string form;
  std::string host;         // the switch it hides behind; empty: none
  std::string side = "on";  // of the host that is wrong: on | off; step: wrong whatever the switches
  bool operator==(const RecordedPlant&) const = default;
};

/// What was asked in a launch: the host's side, and whether all other switches are as deployed or off.
struct RecordedSetting {
  bool host_on = true;
  bool others_deployed = true;
  std::size_t index() const { return (host_on ? 0 : 1) + (others_deployed ? 0 : 2); }
};
inline constexpr std::size_t kRecordedSettings = 4;
RecordedSetting recorded_setting(std::size_t index);

/// One launch of one plant (a process of its own, or one for each setting that needs one).
struct RecordedLaunch {
  RecordedPlant plant;
  int number = 1;
  double seconds = 0;
  /// By cell, then by setting: one mark a question, '.' right, 'x' failed, '?' no reply. Empty: not asked. The
  /// questions of a cell are the same, in the same order, wherever they are asked.
  std::map<std::string, std::vector<std::string>> marks;
};

struct Recording {
  std::string model_hash;
  std::uint64_t seed = 1;  // of the questions
  std::vector<std::string> cells;
  int questions = 0;  // of each cell
  int launches = 0;   // of each plant
  std::vector<RecordedLaunch> rows;

  bool holds(const RecordedPlant& plant, int launch) const;
};

/// The line of the file that tells what was recorded, and that of a launch, both with their end.
std::string recording_head(const Recording& recording);
std::string recorded_line(const RecordedLaunch& launch);

/// Reads such a text. A last line without its end is left out: recording was interrupted there. Errors: no head,
/// another version, a line that is none of ours, with `name` and line.
Result<Recording> parse_recording(const std::string& text, const std::string& name);
Result<Recording> read_recording(const std::filesystem::path& file);

}  // namespace plumb::investigator
