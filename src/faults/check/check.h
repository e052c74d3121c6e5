#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "faults/check/outcome.h"
#include "faults/plants.h"

namespace plumb::faults {

struct CheckOptions {
  std::string model;                // folder of the phantom
  std::filesystem::path questions;  // what phantom/write_questions.py writes
  std::vector<std::string> kinds;   // empty: all
  std::string form;                 // empty: all
  int processes = 2;                // at a time
  double timeout_s = 1800;          // of one process
};

/// A plant, measured, and how that differs from what is recorded; `complaint` is empty when it does not.
struct Checked {
  const Plant* plant;
  Outcome outcome;
  std::string complaint;
};

/// Measures the plants, each in a fresh process and in further launches, against the reference variant and the honest
/// on side. Errors: the model cannot be loaded, no plant of that name, the reference or an honest side could not be
/// measured or differs within itself.
Result<std::vector<Checked>> check_plants(const CheckOptions& options);

/// How an outcome differs from the recorded one and from the stated site; empty when it does not. Counts, word and site
/// must be equal, D within 10 % (above 1e-9).
std::string difference(const Plant& plant, const Outcome& outcome);

/// The rows of recorded.inc: those measured now, and the old ones of the plants that were not.
std::string recorded_rows(std::span<const Checked> measured);

}  // namespace plumb::faults
