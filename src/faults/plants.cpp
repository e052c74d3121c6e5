#include "faults/plants.h"

#include <vector>

namespace plumb::faults {

std::span<const Plant> plants() {
  static const std::vector<Plant> table{};
  return table;
}

const Plant* find_plant(std::span<const Plant> table, std::string_view kind, std::string_view form) {
  for (const Plant& plant : table)
    if (plant.kind == kind && plant.form == form) return &plant;
  return nullptr;
}

}  // namespace plumb::faults
