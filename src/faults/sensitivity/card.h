#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "faults/plants.h"
#include "faults/sensitivity/cell.h"

namespace plumb::faults {

struct CardOptions {
  std::string model;                // folder of the phantom
  std::filesystem::path questions;  // what phantom/write_questions.py writes
  std::vector<std::string> kinds;   // empty: all
  std::vector<std::int64_t> lengths{256, 1024, 4096, 8192};
  std::filesystem::path journal;  // what is known already, and is added to
  int processes = 2;              // at a time
  double minutes = 0;             // no group begins later; 0: no limit
};

/// A plant at each length, in the order of the lengths.
struct PlantCells {
  const Plant* plant;
  std::vector<CellSummary> cells;
};

struct Card {
  std::string model_hash;
  std::vector<std::int64_t> lengths;
  std::vector<PlantCells> plants;
  bool complete = false;  // every cell has the trials it needs
};

/// Measures every plant at every length beside its honest variant, group by group, each in a fresh process, until each
/// cell is_finished; what the journal has is not measured again. Groups of a plant draw seeds and launches of their
/// own. Errors: model or questions cannot be read; a length that the questions do not have; no such kind; the journal
/// is of another subject; a variant without a fault does not answer the same twice.
Result<Card> measure_card(const CardOptions& options);

/// docs/sensitivity.md and the JSON beside it.
std::string card_markdown(const Card& card);
std::string card_json(const Card& card);

}  // namespace plumb::faults
