#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "investigator/bench_isolate.h"
#include "investigator/recorded_trials.h"

namespace plumb::investigator {

/// `plumb bench isolate --recorded`: whole investigations whose trials are drawn from those of a real engine with real
/// plants. A simulated launch is one recorded launch, drawn anew with replacement: its trials stay together. A trial is
/// one of its recorded questions, chosen by the trial's seed, so that a prompt is the same question in every variant.
/// All other switches are honest: some are decoys, whose faults broke no recorded answer.
struct RecordedBenchOptions {
  int investigations = 2000;  // over all kinds of worlds together
  int switches = 16;
  std::uint64_t seed = 1;
};

struct RecordedBenchResult {
  RecordedBenchOptions options;
  int plants = 0;    // that were recorded
  int breaking = 0;  // of them: whose bad side loses answers for sure
  int launches = 0;  // recorded
  std::string model_hash;
  std::vector<WorldScore> restarts;  // a launch a variant
  std::vector<WorldScore> requests;  // the same worlds, switches turned by requests
  std::vector<MethodScore> methods;
  std::vector<CalibrationBin> calibration;
};

/// Errors: a recording without a launch in which nothing was planted, or without a plant that breaks answers.
Result<RecordedBenchResult> bench_recorded(const Recording& recording, const RecordedBenchOptions& options);

/// One JSON document; a section of docs/scoreboard.md.
std::string recorded_bench_json(const RecordedBenchResult& result);
std::string recorded_bench_markdown(const RecordedBenchResult& result, const std::string& file);

}  // namespace plumb::investigator
