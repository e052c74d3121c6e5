#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "investigator/demo.h"
#include "investigator/recorded_trials.h"

namespace plumb::investigator {

struct RecordOptions {
  DemoOptions deployed;        // model, executable (plumb-faulty), backend, switches and facts of the demo
  std::filesystem::path file;  // recorded trials; what it holds already is not asked again
  std::filesystem::path logs;  // of the servers
  std::vector<RecordedPlant> plants;
  int questions = 6;
  int launches = 2;
  std::uint64_t seed = 1;
  std::function<void(const std::string&)> say;  // one line a launch; may be empty
};

/// What plumb-faulty can plant, nothing first. Errors: the executable does not list it.
Result<std::vector<RecordedPlant>> plants_of(const std::filesystem::path& plumb_faulty);

/// Starts the demo's server with each plant in turn and asks every probe in four settings: the plant's switch on and
/// off, the others as deployed and off. What does not depend on the launch, the plant's good side, is asked in the
/// first launch only. Each launch is appended to the file before the next begins. Errors: a server that does not start
/// or answer; a file that was recorded of another model or with other options.
Result<Recording> record_trials(const RecordOptions& options);

/// What the file holds of a launch that `ask` answers, in the order of recording; for tests without a server.
using RecordedAsk = std::function<Result<std::string>(const std::string& cell, const RecordedSetting& setting)>;
Result<RecordedLaunch> record_launch(const RecordedPlant& plant, int number, const std::vector<std::string>& cells,
                                     const RecordedAsk& ask);

}  // namespace plumb::investigator
